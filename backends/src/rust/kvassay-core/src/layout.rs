//! Where the streams of a page lie (page format, body).

use crate::codec::Codec;
use crate::spec::{CENTRE_PAGE, Family, LayerSpec, SCALE_FP16};

/// Bytes of a page header.
pub const HEADER: usize = 64;

/// The streams in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Part {
    KeyCodes,
    ValueCodes,
    KeySigns,
    KeyScales,
    KeyNorms,
    ValueScales,
    KeySteps,
    KeyMinima,
    ValueSteps,
    ValueMinima,
    KeyMean,
    KeyMaxima,
    NormMaxima,
    ValueMaxima,
}

/// All of them.
pub const PARTS: [Part; 14] = [
    Part::KeyCodes,
    Part::ValueCodes,
    Part::KeySigns,
    Part::KeyScales,
    Part::KeyNorms,
    Part::ValueScales,
    Part::KeySteps,
    Part::KeyMinima,
    Part::ValueSteps,
    Part::ValueMinima,
    Part::KeyMean,
    Part::KeyMaxima,
    Part::NormMaxima,
    Part::ValueMaxima,
];

/// Offsets and sizes of the streams of a page; plain data.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    offset: [u32; PARTS.len()],
    head_bytes: [u32; PARTS.len()],
    heads: u32,
    bytes: u32,
}

impl Layout {
    /// The layout of a checked spec. The largest page, 65535 heads apart, is below 2^32 bytes for 1820 heads of
    /// 576 channels and 1024 tokens; `None` beyond.
    pub fn new(spec: &LayerSpec, key: &Codec, value: &Codec) -> Option<Self> {
        let (p, d) = (usize::from(spec.page_tokens), usize::from(spec.head_dim));
        let (keys, values) = (spec.keys(), spec.values());
        let scale = if spec.scale_kind == SCALE_FP16 { 2 } else { 1 };
        let maxima = usize::from(spec.scale_kind != SCALE_FP16);
        let qjl = usize::from(keys == Family::TurboQjl);
        let (key_turbo, value_turbo) = (usize::from(keys.rotated()), usize::from(values.rotated()));
        let (key_kivi, value_kivi) = (usize::from(keys == Family::Kivi), usize::from(values == Family::Kivi));
        let codes = |family: Family, codec: &Codec| if family == Family::Fp16 { 2 * p * d } else { codec.bytes(p) };
        let head_bytes = [
            codes(keys, key),
            codes(values, value),
            qjl * p * d / 8,
            key_turbo * p * scale,
            qjl * p * scale,
            value_turbo * p * scale,
            key_kivi * p.div_ceil(32) * d * 2,
            key_kivi * p.div_ceil(32) * d * 2,
            value_kivi * d.div_ceil(32) * p * 2,
            value_kivi * d.div_ceil(32) * p * 2,
            usize::from(spec.key_centring() == CENTRE_PAGE) * d * 2,
            key_turbo * maxima * 4,
            qjl * maxima * 4,
            value_turbo * maxima * 4,
        ];
        let heads = u64::from(spec.kv_heads);
        let mut layout =
            Self { offset: [0; 14], head_bytes: head_bytes.map(|n| n as u32), heads: heads as u32, bytes: 0 };
        let mut at = HEADER as u64;
        for (offset, bytes) in layout.offset.iter_mut().zip(head_bytes) {
            at = at.next_multiple_of(16);
            *offset = u32::try_from(at).ok()?;
            at += bytes as u64 * heads;
        }
        layout.bytes = u32::try_from(at.next_multiple_of(64)).ok()?;
        Some(layout)
    }

    /// Bytes of the whole page.
    pub fn bytes(&self) -> usize {
        self.bytes as usize
    }

    /// Where the stream of one head lies in the page.
    #[inline(always)]
    pub fn range(&self, part: Part, head: usize) -> std::ops::Range<usize> {
        let bytes = self.head_bytes[part as usize] as usize;
        let from = self.offset[part as usize] as usize + head * bytes;
        from..from + bytes
    }

    /// Where the stream of all heads lies; empty where the spec does not call for it.
    pub fn stream(&self, part: Part) -> std::ops::Range<usize> {
        let from = self.offset[part as usize] as usize;
        from..from + self.head_bytes[part as usize] as usize * self.heads as usize
    }

    /// Bytes of all heads of these streams.
    pub fn total(&self, parts: &[Part]) -> usize {
        parts.iter().map(|part| self.stream(*part).len()).sum()
    }
}
