//! Restoring: everything is checked before anything is used (dump format).

use std::sync::Arc;

use super::dump::{CRC_AT, DUMP_VERSION, Extent, HEADER, MAGIC, RECORD, Section, records_at, write_record};
use super::layer::Layer;
use super::{Cache, Config, memory};
use crate::crc;
use crate::error::{Error, Kind, Result};
use crate::half;
use crate::kernels::control::StandardArithmetic;
use crate::page;
use crate::spec::{LayerSpec, RESERVED_AT};

fn damaged(message: String) -> Error {
    Error::new(Kind::Page, format!("dump: {message}"))
}

fn two(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn four(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("four bytes"))
}

fn eight(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("eight bytes"))
}

impl Cache {
    /// The cache of a dump; one of another identity is refused by naming the first field that differs.
    pub fn restore(config: Config, dump: &[u8]) -> Result<Self> {
        let _standard = StandardArithmetic::begin();
        check_frame(dump)?;
        let size = four(dump, 24) as usize;
        check_identity(&config.identity, &dump[HEADER..HEADER + size])?;
        if four(dump, 20) as usize != config.specs.len() {
            return Err(damaged(format!(
                "{} layers declared, its identity has {}",
                four(dump, 20),
                config.specs.len()
            )));
        }
        let records = records_at(size as u64) as usize;
        let after = records + RECORD * config.specs.len();
        if after > dump.len() {
            return Err(damaged(format!("{} bytes end before the layer records", dump.len())));
        }
        require_zero(dump, HEADER + size, records)?;
        let mut cache = Self::new(config)?;
        let mut end = after;
        for layer in 0..cache.layers.len() {
            let record = &dump[records + layer * RECORD..][..RECORD];
            let extent = read_record(layer, &cache.layers[layer].plan.spec, record)?;
            end = cache.restore_layer(layer, &extent, dump, end)?;
        }
        require_zero(dump, end, dump.len())?;
        if dump.len() != end.next_multiple_of(64) {
            return Err(damaged(format!("{} bytes after the last section", dump.len() - end)));
        }
        let pages: usize = cache.layers.iter().map(|layer| layer.pages.len()).sum();
        cache.note(2 * pages as u64 + 1);
        Ok(cache)
    }

    /// Takes over the section of a layer, after `before`; the result is where it ends.
    fn restore_layer(&mut self, layer: usize, extent: &Extent, dump: &[u8], before: usize) -> Result<usize> {
        let held = &self.layers[layer];
        let section = Section::new(held, extent);
        let start = (before as u64).next_multiple_of(64);
        if extent.offset != start {
            return Err(damaged(format!("layer {layer}: its section is at {}, not at {start}", extent.offset)));
        }
        if section.bytes() > (dump.len() as u64).saturating_sub(start) {
            return Err(damaged(format!("layer {layer}: its section ends behind the dump")));
        }
        let start = start as usize;
        require_zero(dump, before, start)?;
        let bytes = &dump[start..start + section.bytes() as usize];
        let (front, pages) = bytes.split_at(section.front() as usize);
        self.restore_front(layer, &section, front)?;
        let spec = self.layers[layer].plan.spec;
        let plan = self.layers[layer].plan.clone();
        let mut restored = memory::vector(section.pages as usize)?;
        for (i, bytes) in pages.chunks_exact(section.page as usize).enumerate() {
            let token = u64::from(spec.sinks) + (extent.first_page + i as u64) * u64::from(spec.page_tokens);
            page::check(&plan, Some(&self.page_id(layer, token)), bytes).map_err(|error| {
                let message = format!("{} (dump, layer {layer}, page {i})", error.message);
                Error { message, ..error }
            })?;
            restored.push(Arc::new(memory::copy_of(bytes)?));
        }
        let held = &mut self.layers[layer];
        held.pages = restored;
        held.length = extent.length;
        held.first_page = extent.first_page;
        Ok(start + section.bytes() as usize)
    }

    fn restore_front(&mut self, layer: usize, section: &Section, front: &[u8]) -> Result<()> {
        let used = section.means[0] + section.means[1] + 2 * section.sinks + 2 * section.residual;
        let (halves, gap) = front.split_at(used as usize);
        if gap.iter().any(|byte| *byte != 0) {
            return Err(damaged(format!("layer {layer}: the gap before the pages is not zero")));
        }
        if halves.as_chunks::<2>().0.iter().any(|h| !half::is_finite(u16::from_le_bytes(*h))) {
            return Err(damaged(format!("layer {layer}: an fp16 token or mean is NaN or infinite")));
        }
        let held = &mut self.layers[layer];
        let (first, rest) = halves.split_at(section.means[0] as usize);
        let (second, mut rest) = rest.split_at(section.means[1] as usize);
        held.means = [memory::copy_of(first)?, memory::copy_of(second)?];
        for (sinks, stream) in [(true, 0), (true, 1), (false, 0), (false, 1)] {
            let (bytes, after) = rest.split_at(if sinks { section.sinks } else { section.residual } as usize);
            held.take_tokens(sinks, stream, bytes)?;
            rest = after;
        }
        Ok(())
    }
}

impl Layer {
    /// Takes fp16 tokens `[kv_heads][tokens][d]`.
    fn take_tokens(&mut self, sinks: bool, stream: usize, bytes: &[u8]) -> Result<()> {
        let row = 2 * self.plan.d();
        let heads = self.plan.heads();
        let tokens = bytes.len() / (row * heads);
        let to = if sinks { &mut self.sinks[stream] } else { &mut self.residual[stream] };
        to.reserve(bytes.len(), bytes.len())?;
        for (i, out) in to.extend(bytes.len()).chunks_exact_mut(row).enumerate() {
            let (token, head) = (i / heads, i % heads);
            out.copy_from_slice(&bytes[(head * tokens + token) * row..][..row]);
        }
        Ok(())
    }
}

/// Size, magic, version, CRC and what must be zero.
fn check_frame(dump: &[u8]) -> Result<()> {
    if dump.len() < HEADER || !dump.len().is_multiple_of(64) {
        return Err(damaged(format!("{} bytes are no whole dump", dump.len())));
    }
    if &dump[..4] != MAGIC {
        return Err(damaged("magic is not KVDM".into()));
    }
    if two(dump, 4) != DUMP_VERSION {
        return Err(damaged(format!("version is {}, this reader knows {DUMP_VERSION}", two(dump, 4))));
    }
    if eight(dump, 8) != dump.len() as u64 {
        return Err(damaged(format!("{} bytes are there, its header says {}", dump.len(), eight(dump, 8))));
    }
    let crc = crc::with_hole(dump, CRC_AT);
    if four(dump, CRC_AT) != crc {
        return Err(damaged(format!("CRC is {:#010x}, the bytes have {crc:#010x}", four(dump, CRC_AT))));
    }
    if two(dump, 6) != 0 || four(dump, 28) != 0 {
        return Err(damaged("a reserved field of the header is not 0".into()));
    }
    if u64::from(four(dump, 24)) > (dump.len() - HEADER) as u64 {
        return Err(damaged(format!("the identity text of {} bytes ends behind the dump", four(dump, 24))));
    }
    Ok(())
}

fn require_zero(dump: &[u8], from: usize, to: usize) -> Result<()> {
    if dump[from..to].iter().any(|byte| *byte != 0) {
        return Err(damaged(format!("the gap from byte {from} to {to} is not zero")));
    }
    Ok(())
}

/// The texts are compared as bytes; of two that differ the key before the first difference is named.
fn check_identity(expected: &[u8], found: &[u8]) -> Result<()> {
    if expected == found {
        return Ok(());
    }
    let same = expected.iter().zip(found).take_while(|(a, b)| a == b).count();
    let before = String::from_utf8_lossy(&found[..same.min(found.len())]).into_owned();
    // In `..."key":value` the key is the last quoted text before a colon.
    let field = before.rsplit("\":").nth(1).and_then(|text| text.rsplit('"').next()).unwrap_or("identity").to_owned();
    let field = if field.is_empty() { "identity".to_owned() } else { field };
    Err(Error::new(Kind::Identity, format!("{field}: differs in the identity text of the dump (byte {same})")))
}

/// A record that agrees with the spec.
fn read_record(layer: usize, spec: &LayerSpec, record: &[u8]) -> Result<Extent> {
    let extent = Extent {
        length: eight(record, 40),
        first_page: u64::from(four(record, 48)),
        pages: u64::from(four(record, 52)),
        offset: eight(record, 56),
    };
    let expected = write_record(spec, &extent);
    for &(name, at, size) in LayerSpec::FIELDS {
        if record[at..at + size] != expected[at..at + size] {
            return Err(Error::new(Kind::Identity, format!("{name}: not this cache's in layer {layer} of the dump")));
        }
    }
    if two(record, RESERVED_AT) != 0 {
        return Err(damaged(format!("layer {layer}: the reserved field of its record is not 0")));
    }
    if extent.length > u64::from(u32::MAX) {
        return Err(damaged(format!("layer {layer}: {} tokens are beyond what pages can number", extent.length)));
    }
    let (live, sealed) = (spec.first_live(extent.length), spec.sealed(extent.length));
    if (extent.first_page, extent.pages) != (live, sealed - live) {
        let message = format!(
            "layer {layer}: pages {} and on, {} of them; {} tokens have pages {live} .. {sealed}",
            extent.first_page, extent.pages, extent.length
        );
        return Err(damaged(message));
    }
    Ok(extent)
}
