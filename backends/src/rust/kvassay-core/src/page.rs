//! Page headers, and what a reader asks of a page before it uses it (page format).

use crate::crc;
use crate::error::{Error, Kind, Result};
use crate::half;
use crate::layout::{HEADER, PARTS, Part};
use crate::plan::Plan;
use crate::spec::{Family, SCALE_FP16};

/// Version of the page format.
pub const PAGE_VERSION: u16 = 2;
const MAGIC: &[u8; 4] = b"KVPG";
const CRC_AT: usize = 44;
const CODEBOOKS: u16 = 1 << 8;
const FLAG_BITS: u16 = 0x0f3f;
/// Fields that only an id can be compared with.
const OWNER: [&str; 3] = ["model", "tokenizer", "runtime"];
/// Fields that are damage where they differ: they contradict the page itself or the place where it lies.
const MISPLACED: [&str; 3] = ["stored dim", "layer", "token start"];

/// What a page says of itself beyond the spec.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageId {
    /// Model and adapter hash, 0 if not given.
    pub model: u64,
    /// Tokenizer and chat-template hash.
    pub tokenizer: u64,
    /// Runtime hash.
    pub runtime: u64,
    /// Position of the first token.
    pub token_start: u32,
    /// Layer.
    pub layer: u32,
}

/// The header fields in order of their offset: name, offset, value. CRC and magic are apart.
fn fields(plan: &Plan, id: &PageId) -> [(&'static str, usize, Number); 16] {
    let spec = &plan.spec;
    let rotated = spec.rotated();
    let scale = if rotated { spec.scale_kind } else { 0 };
    let centres = u16::from(spec.key_centring()) << 2 | u16::from(spec.value_centring()) << 4;
    let transform = if rotated { 1 + 256 * u16::from(spec.rounds) } else { 0 };
    use Number::{Byte, Four, Long, Two};
    [
        ("version", 4, Two(PAGE_VERSION)),
        ("flags", 6, Two(u16::from(scale) | centres | CODEBOOKS)),
        ("model", 8, Long(id.model)),
        ("tokenizer", 16, Long(id.tokenizer)),
        ("runtime", 24, Long(id.runtime)),
        ("seed", 32, Long(if rotated { spec.seed } else { 0 })),
        ("token start", 40, Four(id.token_start)),
        ("layer", 48, Two(id.layer as u16)),
        ("token count", 50, Two(spec.page_tokens)),
        ("KV heads", 52, Two(spec.kv_heads)),
        ("head dim", 54, Two(spec.head_dim)),
        ("stored dim", 56, Two(spec.head_dim)),
        ("transform", 58, Two(transform)),
        ("key mode", 60, Byte(spec.key_mode)),
        ("value mode", 61, Byte(spec.value_mode)),
        ("reserved", 62, Two(0)),
    ]
}

enum Number {
    Byte(u8),
    Two(u16),
    Four(u32),
    Long(u64),
}

impl Number {
    fn wide(&self) -> u64 {
        u64::from_le_bytes(self.bytes().0)
    }

    /// What stands in the page where this number belongs.
    fn found(&self, at: usize, page: &[u8]) -> u64 {
        let mut wide = [0; 8];
        let size = self.bytes().1;
        wide[..size].copy_from_slice(&page[at..at + size]);
        u64::from_le_bytes(wide)
    }

    fn bytes(&self) -> ([u8; 8], usize) {
        let (value, size) = match *self {
            Self::Byte(x) => (u64::from(x), 1),
            Self::Two(x) => (u64::from(x), 2),
            Self::Four(x) => (u64::from(x), 4),
            Self::Long(x) => (x, 8),
        };
        (value.to_le_bytes(), size)
    }
}

/// Writes the header of a page whose body is written, the CRC last.
pub fn seal(plan: &Plan, id: &PageId, page: &mut [u8]) {
    page[..HEADER].fill(0);
    page[..4].copy_from_slice(MAGIC);
    for (_, at, value) in fields(plan, id) {
        let (bytes, size) = value.bytes();
        page[at..at + size].copy_from_slice(&bytes[..size]);
    }
    let crc = plan.kernels().crc32(0, page); // its field is still 0
    page[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
}

fn damaged(message: String) -> Error {
    Error::new(Kind::Page, format!("page: {message}"))
}

/// Everything that the page format asks of a reader; without an id hashes, layer and token start are not compared.
pub fn check(plan: &Plan, id: Option<&PageId>, page: &[u8]) -> Result<()> {
    if page.len() < HEADER {
        return Err(damaged(format!("{} bytes, shorter than its header of {HEADER}", page.len())));
    }
    check_form(page)?;
    check_fields(plan, id, page)?;
    let expected = plan.layout.bytes();
    if page.len() != expected {
        return Err(damaged(format!("{} bytes, but one of this cache has {expected}", page.len())));
    }
    check_gaps(plan, page)?;
    let stored = u32::from_le_bytes(*page[CRC_AT..].first_chunk().expect("a header"));
    let crc = crc::with_hole(page, CRC_AT);
    if stored != crc {
        return Err(damaged(format!("CRC is {stored:#010x}, the bytes have {crc:#010x}")));
    }
    check_numbers(plan, page)
}

fn check_form(page: &[u8]) -> Result<()> {
    if &page[..4] != MAGIC {
        return Err(damaged("magic is not KVPG".into()));
    }
    let two = |at: usize| u16::from_le_bytes([page[at], page[at + 1]]);
    if two(4) != PAGE_VERSION {
        return Err(damaged(format!("version is {}, this reader knows {PAGE_VERSION}", two(4))));
    }
    let flags = two(6);
    if flags & 0x0f00 != CODEBOOKS {
        return Err(damaged(format!("codebook version is {}, this reader knows 1", flags >> 8 & 15)));
    }
    if flags & !FLAG_BITS != 0 {
        return Err(damaged(format!("flags {flags:#06x} have unknown bits")));
    }
    if two(62) != 0 {
        return Err(damaged(format!("reserved is {}, not 0", two(62))));
    }
    Ok(())
}

/// Every field against its one right value; which error it gives does not depend on what stands in it.
fn check_fields(plan: &Plan, id: Option<&PageId>, page: &[u8]) -> Result<()> {
    let any = PageId::default();
    let expected = fields(plan, id.unwrap_or(&any));
    for (name, at, value) in expected.iter().filter(|(name, ..)| !MISPLACED.contains(name)) {
        if id.is_none() && OWNER.contains(name) {
            continue;
        }
        if *name == "flags" {
            check_flags(u64::from(page[*at]), value.bytes().0[0].into())?;
        } else {
            differs(name, value.found(*at, page), value.wide())?;
        }
    }
    for (name, at, value) in expected.iter().filter(|(name, ..)| MISPLACED.contains(name)) {
        let (found, expected) = (value.found(*at, page), value.wide());
        if found != expected && (id.is_some() || *name == "stored dim") {
            return Err(damaged(format!("{name} is {found}, expected {expected}")));
        }
    }
    Ok(())
}

/// The kinds of scales and centring, two bits each.
fn check_flags(found: u64, expected: u64) -> Result<()> {
    for (name, shift) in [("scale kind", 0), ("key centring", 2), ("value centring", 4)] {
        differs(name, found >> shift & 3, expected >> shift & 3)?;
    }
    Ok(())
}

fn differs(name: &str, found: u64, expected: u64) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    let message = format!("{name}: {found} in the page, {expected} in this cache; it belongs to another cache");
    Err(Error::new(Kind::Identity, message))
}

fn check_gaps(plan: &Plan, page: &[u8]) -> Result<()> {
    let mut end = HEADER;
    let streams = PARTS.iter().map(|part| plan.layout.stream(*part)).chain(std::iter::once(page.len()..page.len()));
    for stream in streams {
        if page[end..stream.start].iter().any(|byte| *byte != 0) {
            return Err(damaged(format!("the gap before byte {} is not zero", stream.start)));
        }
        end = stream.end;
    }
    Ok(())
}

fn check_numbers(plan: &Plan, page: &[u8]) -> Result<()> {
    let spec = &plan.spec;
    let stream = |part| &page[plan.layout.stream(part)];
    for part in [Part::KeyMaxima, Part::NormMaxima, Part::ValueMaxima] {
        for x in stream(part).as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)) {
            if x.to_bits() != 0 && !(x.is_normal() && x > 0.0) {
                return Err(damaged(format!("{part:?} holds {x}, which no writer makes")));
            }
        }
    }
    let halves = |part| stream(part).as_chunks::<2>().0.iter().map(|bytes| u16::from_le_bytes(*bytes));
    let scales: &[Part] = match spec.scale_kind {
        SCALE_FP16 => &[Part::KeyScales, Part::KeyNorms, Part::ValueScales, Part::KeySteps, Part::ValueSteps],
        _ => &[Part::KeySteps, Part::ValueSteps],
    };
    for part in scales {
        if halves(*part).any(|h| h & 0x8000 != 0 || !half::is_finite(h)) {
            return Err(damaged(format!("{part:?} holds a number that is negative, NaN or infinite")));
        }
    }
    let mut signed = vec![Part::KeyMinima, Part::ValueMinima, Part::KeyMean];
    signed.extend((spec.keys() == Family::Fp16).then_some(Part::KeyCodes));
    signed.extend((spec.values() == Family::Fp16).then_some(Part::ValueCodes));
    for part in signed {
        if halves(part).any(|h| !half::is_finite(h)) {
            return Err(damaged(format!("{part:?} holds NaN or infinity")));
        }
    }
    Ok(())
}
