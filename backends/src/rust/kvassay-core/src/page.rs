//! Page headers, and what a reader asks of a page before it uses it (page format).

use crate::crc;
use crate::error::{Error, Kind, Result};
use crate::half;
use crate::layout::{HEADER, Holds, PARTS, Part};
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

/// What a page says of itself beyond the spec, in memory as `kv_page_id` has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
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

/// The header fields in order of their offset: name, offset, bytes, value. CRC and magic are apart.
fn fields(plan: &Plan, id: &PageId) -> [(&'static str, usize, usize, u64); 16] {
    let spec = &plan.spec;
    let rotated = spec.rotated();
    let scale = if rotated { spec.scale_kind } else { 0 };
    let centres = u16::from(spec.key_centring()) << 2 | u16::from(spec.value_centring()) << 4;
    [
        ("version", 4, 2, PAGE_VERSION.into()),
        ("flags", 6, 2, (u16::from(scale) | centres | CODEBOOKS).into()),
        ("model", 8, 8, id.model),
        ("tokenizer", 16, 8, id.tokenizer),
        ("runtime", 24, 8, id.runtime),
        ("seed", 32, 8, if rotated { spec.seed } else { 0 }),
        ("token start", 40, 4, id.token_start.into()),
        ("layer", 48, 2, (id.layer as u16).into()),
        ("token count", 50, 2, spec.page_tokens.into()),
        ("KV heads", 52, 2, spec.kv_heads.into()),
        ("head dim", 54, 2, spec.head_dim.into()),
        ("stored dim", 56, 2, spec.head_dim.into()),
        ("transform", 58, 2, if rotated { 1 + 256 * u64::from(spec.rounds) } else { 0 }),
        ("key mode", 60, 1, spec.key_mode.into()),
        ("value mode", 61, 1, spec.value_mode.into()),
        ("reserved", 62, 2, 0),
    ]
}

/// The number of so many bytes in a page.
fn number(page: &[u8], at: usize, size: usize) -> u64 {
    let mut wide = [0; 8];
    wide[..size].copy_from_slice(&page[at..at + size]);
    u64::from_le_bytes(wide)
}

/// Writes the header of a page whose body is written, the CRC last.
pub fn seal(plan: &Plan, id: &PageId, page: &mut [u8]) {
    page[..HEADER].fill(0);
    page[..4].copy_from_slice(MAGIC);
    for (_, at, size, value) in fields(plan, id) {
        page[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
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
    let stored = number(page, CRC_AT, 4) as u32;
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
    let two = |at| number(page, at, 2) as u16;
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
    for &(name, at, size, value) in expected.iter().filter(|(name, ..)| !MISPLACED.contains(name)) {
        if id.is_none() && OWNER.contains(&name) {
            continue;
        }
        if name == "flags" {
            check_flags(number(page, at, 1), value & 255)?;
        } else {
            differs(name, number(page, at, size), value)?;
        }
    }
    for &(name, at, size, value) in expected.iter().filter(|(name, ..)| MISPLACED.contains(name)) {
        let found = number(page, at, size);
        if found != value && (id.is_some() || name == "stored dim") {
            return Err(damaged(format!("{name} is {found}, expected {value}")));
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
    let streams =
        PARTS.iter().map(|(part, _)| plan.layout.stream(*part)).chain(std::iter::once(page.len()..page.len()));
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
    let parts = |wanted: &'static [Holds]| PARTS.into_iter().filter(|part| wanted.contains(&part.1)).map(|part| part.0);
    for part in parts(&[Holds::Maxima]) {
        for x in stream(part).as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)) {
            if x.to_bits() != 0 && !(x.is_normal() && x > 0.0) {
                return Err(damaged(format!("{part:?} holds {x}, which no writer makes")));
            }
        }
    }
    let halves = |part| stream(part).as_chunks::<2>().0.iter().map(|bytes| u16::from_le_bytes(*bytes));
    for part in parts(if spec.scale_kind == SCALE_FP16 { &[Holds::Scales, Holds::Steps] } else { &[Holds::Steps] }) {
        if halves(part).any(|h| h & 0x8000 != 0 || !half::is_finite(h)) {
            return Err(damaged(format!("{part:?} holds a number that is negative, NaN or infinite")));
        }
    }
    let keys = (spec.keys() == Family::Fp16).then_some(Part::KeyCodes);
    let values = (spec.values() == Family::Fp16).then_some(Part::ValueCodes);
    for part in parts(&[Holds::Minima, Holds::Mean]).chain(keys).chain(values) {
        if halves(part).any(|h| !half::is_finite(h)) {
            return Err(damaged(format!("{part:?} holds NaN or infinity")));
        }
    }
    Ok(())
}
