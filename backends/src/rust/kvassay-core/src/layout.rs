//! Where the streams of a page lie (page format, body).

use crate::transform::Stream;

/// Bytes of a page header.
pub const HEADER: usize = 64;

/// What a stream holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Holds {
    Codes,
    Scales,
    Steps,
    Minima,
    Mean,
    Maxima,
}

/// The streams, from one row each.
macro_rules! parts {
    ($($part:ident: $holds:ident;)*) => {
        /// The streams in their order.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum Part { $($part,)* }

        /// All of them.
        pub const PARTS: [(Part, Holds); [$(Part::$part),*].len()] = [$((Part::$part, Holds::$holds)),*];
    };
}

parts! {
    KeyCodes: Codes;
    ValueCodes: Codes;
    KeySigns: Codes;
    KeyScales: Scales;
    KeyNorms: Scales;
    ValueScales: Scales;
    KeySteps: Steps;
    KeyMinima: Minima;
    ValueSteps: Steps;
    ValueMinima: Minima;
    KeyMean: Mean;
    KeyMaxima: Maxima;
    NormMaxima: Maxima;
    ValueMaxima: Maxima;
}

impl Part {
    /// Whether logits read it.
    pub(crate) fn of_keys(self) -> bool {
        use Part::*;
        !matches!(self, ValueCodes | ValueScales | ValueSteps | ValueMinima | ValueMaxima)
    }
}

/// The streams of keys, of values or of signs, which have no steps and minima.
pub(crate) struct Parts {
    pub stream: Stream,
    pub codes: Part,
    pub scales: Part,
    pub maxima: Part,
    pub steps: Part,
    pub minima: Part,
}

impl Parts {
    pub fn of(stream: Stream) -> Self {
        use Part::*;
        let [codes, scales, maxima, steps, minima] = match stream {
            Stream::Keys => [KeyCodes, KeyScales, KeyMaxima, KeySteps, KeyMinima],
            Stream::Values => [ValueCodes, ValueScales, ValueMaxima, ValueSteps, ValueMinima],
            Stream::Signs => [KeySigns, KeyNorms, NormMaxima, KeySteps, KeyMinima],
        };
        Self { stream, codes, scales, maxima, steps, minima }
    }
}

/// Bytes of one head of each stream.
pub type HeadBytes = [usize; PARTS.len()];

/// Offsets and sizes of the streams of a page; plain data.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    offset: [u32; PARTS.len()],
    head_bytes: [u32; PARTS.len()],
    heads: u32,
    bytes: u32,
}

impl Layout {
    /// The layout of pages with so many heads. The largest page, 65535 heads apart, is below 2^32 bytes for 1820 heads of
    /// 576 channels and 1024 tokens; `None` beyond.
    pub fn new(heads: u16, head_bytes: HeadBytes) -> Option<Self> {
        let head_bytes = head_bytes.map(|n| n as u32);
        let mut layout = Self { offset: [0; PARTS.len()], head_bytes, heads: heads.into(), bytes: 0 };
        let mut at = HEADER as u64;
        for (offset, bytes) in layout.offset.iter_mut().zip(head_bytes) {
            at = at.next_multiple_of(16);
            *offset = u32::try_from(at).ok()?;
            at += u64::from(bytes) * u64::from(heads);
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

    /// Bytes of all heads of all streams that hold this.
    pub fn total(&self, holds: Holds) -> usize {
        PARTS.iter().filter(|part| part.1 == holds).map(|part| self.stream(part.0).len()).sum()
    }
}
