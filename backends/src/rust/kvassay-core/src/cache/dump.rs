//! Dumps: one file, one cache (dump format).

use super::Cache;
use super::layer::Layer;
use crate::crc;
use crate::error::{Error, Kind, Result};
use crate::rows::Rows;
use crate::spec::LayerSpec;

/// Version of the dump format.
pub const DUMP_VERSION: u16 = 1;
pub(super) const MAGIC: &[u8; 4] = b"KVDM";
pub(super) const HEADER: usize = 32;
pub(super) const RECORD: usize = 64;
pub(super) const CRC_AT: usize = 16;

/// What a layer holds in a dump, as its record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub length: u64,
    pub first_page: u64,
    pub pages: u64,
    pub offset: u64,
}

/// Bytes of the parts of a layer's section; each pair is keys and values.
#[derive(Clone, Copy)]
pub(super) struct Section {
    pub means: [u64; 2],
    pub sinks: u64,
    pub residual: u64,
    pub page: u64,
    pub pages: u64,
}

impl Section {
    pub fn new(layer: &Layer, extent: &Extent) -> Self {
        let spec = &layer.plan.spec;
        let (width, sealed) = (spec.token_bytes() as u64, spec.sealed(extent.length));
        let sinks = extent.length.min(u64::from(spec.sinks));
        let frozen = spec.frozen().map(|frozen| if frozen && sealed > 0 { width } else { 0 });
        Self {
            means: frozen,
            sinks: sinks * width,
            residual: (extent.length - sinks - sealed * u64::from(spec.page_tokens)) * width,
            page: layer.plan.layout.bytes() as u64,
            pages: extent.pages,
        }
    }

    /// Bytes before the pages, gap included.
    pub fn front(&self) -> u64 {
        (self.means[0] + self.means[1] + 2 * self.sinks + 2 * self.residual).next_multiple_of(64)
    }

    pub fn bytes(&self) -> u64 {
        self.front() + self.page * self.pages
    }
}

/// Where the records start, after an identity text of this size.
pub(super) fn records_at(identity: u64) -> u64 {
    HEADER as u64 + identity.next_multiple_of(16)
}

impl Layer {
    pub(super) fn extent(&self, offset: u64) -> Extent {
        let first_page = self.plan.spec.first_live(self.length);
        Extent { length: self.length, first_page, pages: self.sealed() - first_page, offset }
    }
}

impl Cache {
    /// The extents in order, and the size of the whole dump.
    fn extents(&self) -> (Vec<Extent>, u64) {
        let mut at = records_at(self.config.identity.len() as u64) + (RECORD * self.layers.len()) as u64;
        let mut extents = Vec::with_capacity(self.layers.len());
        for layer in &self.layers {
            at = at.next_multiple_of(64);
            let extent = layer.extent(at);
            at += Section::new(layer, &extent).bytes();
            extents.push(extent);
        }
        (extents, at.next_multiple_of(64))
    }

    /// Bytes of a dump.
    pub fn dump_bytes(&self) -> u64 {
        self.extents().1
    }

    /// Writes a dump into exactly `dump_bytes()` bytes.
    pub fn dump(&self, out: &mut [u8]) -> Result<()> {
        let (extents, total) = self.extents();
        if out.len() as u64 != total {
            let message = format!("dump: the buffer has {} bytes, the dump takes {total}", out.len());
            return Err(Error::new(Kind::Memory, message));
        }
        out.fill(0);
        let identity = &self.config.identity;
        out[..4].copy_from_slice(MAGIC);
        out[4..6].copy_from_slice(&DUMP_VERSION.to_le_bytes());
        out[8..16].copy_from_slice(&total.to_le_bytes());
        out[20..24].copy_from_slice(&(self.layers.len() as u32).to_le_bytes());
        out[24..28].copy_from_slice(&(identity.len() as u32).to_le_bytes());
        out[HEADER..HEADER + identity.len()].copy_from_slice(identity);
        let records = records_at(identity.len() as u64) as usize;
        for (i, (layer, extent)) in self.layers.iter().zip(&extents).enumerate() {
            let record = &mut out[records + i * RECORD..][..RECORD];
            record.copy_from_slice(&write_record(&layer.plan.spec, extent));
            let section = Section::new(layer, extent);
            layer.write_section(&section, &mut out[extent.offset as usize..][..section.bytes() as usize]);
        }
        let crc = crc::crc32(0, out); // its field is still 0
        out[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        Ok(())
    }
}

impl Layer {
    fn write_section(&self, section: &Section, out: &mut [u8]) {
        let (front, pages) = out.split_at_mut(section.front() as usize);
        let mut rest = front;
        for (mean, bytes) in self.means.iter().zip(section.means) {
            let (to, after) = rest.split_at_mut(bytes as usize);
            to.copy_from_slice(&mean[..bytes as usize]);
            rest = after;
        }
        let state = self.state();
        for rows in [state.sink_keys, state.sink_values, state.residual_keys, state.residual_values] {
            let (to, after) = rest.split_at_mut(rows.count * rows.token_stride);
            self.by_heads(&rows, to);
            rest = after;
        }
        for (page, to) in self.live().iter().zip(pages.chunks_exact_mut(section.page as usize)) {
            to.copy_from_slice(page);
        }
    }

    /// `[kv_heads][tokens][d]`.
    fn by_heads(&self, rows: &Rows<'_>, out: &mut [u8]) {
        let d = self.plan.d();
        for (i, to) in out.chunks_exact_mut(2 * d).enumerate() {
            to.copy_from_slice(rows.head(i / rows.count).row(i % rows.count, d));
        }
    }
}

/// The record of a layer: its spec, then what it holds.
pub(super) fn write_record(spec: &LayerSpec, extent: &Extent) -> [u8; RECORD] {
    let mut out = [0; RECORD];
    out[..40].copy_from_slice(&spec.bytes());
    out[40..48].copy_from_slice(&extent.length.to_le_bytes());
    out[48..52].copy_from_slice(&(extent.first_page as u32).to_le_bytes());
    out[52..56].copy_from_slice(&(extent.pages as u32).to_le_bytes());
    out[56..].copy_from_slice(&extent.offset.to_le_bytes());
    out
}
