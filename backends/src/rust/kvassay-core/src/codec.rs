//! What codes stand for, and where those of which width lie.

/// Largest number of thresholds of a codebook.
pub(crate) const MOST: usize = 7;

/// Channels of equal bits.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// First channel.
    pub first: usize,
    /// Number of channels.
    pub channels: usize,
    /// Bits of a code: 1 to 4.
    pub bits: usize,
    /// What a code stands for, in increasing order.
    pub table: [i8; 16],
    /// Thresholds in units of sigma; turbo alone has them.
    pub thresholds: [f32; MOST],
}

impl Span {
    /// Channels with codes that stand for nothing yet.
    pub(crate) fn new(first: usize, channels: usize, bits: usize) -> Self {
        Self { first, channels, bits, table: [0; 16], thresholds: [0.0; MOST] }
    }

    /// Bytes of one tile of 64 codes.
    pub fn tile_bytes(&self) -> usize {
        8 * self.bits
    }

    /// Bytes of the codes of this many tokens.
    pub fn bytes(&self, tokens: usize) -> usize {
        tokens * self.channels * self.bits / 8
    }

    /// The thresholds that there are.
    pub fn used(&self) -> &[f32] {
        &self.thresholds[..(1 << (self.bits - 1)) - 1]
    }

    /// The largest magnitude in the table.
    pub fn largest(&self) -> i32 {
        self.table[..1 << self.bits].iter().map(|x| i32::from(*x).abs()).max().unwrap_or(0)
    }
}

/// The codes of a stream: one span, or two at a fractional rate.
#[derive(Clone, Copy, Debug)]
pub struct Codec {
    spans: [Span; 2],
    count: usize,
}

impl Codec {
    /// The spans in channel order.
    pub fn spans(&self) -> &[Span] {
        &self.spans[..self.count]
    }

    /// Bytes of the codes of this many tokens of one head.
    pub fn bytes(&self, tokens: usize) -> usize {
        self.spans().iter().map(|span| span.bytes(tokens)).sum()
    }

    /// Signs: a set bit is +1.
    pub fn signs(d: usize) -> Self {
        let mut span = Span::new(0, d, 1);
        span.table[..2].copy_from_slice(&[-1, 1]);
        Self::of(&[span])
    }

    /// The codec of at most two spans.
    pub(crate) fn of(spans: &[Span]) -> Self {
        let mut all = [Span::new(0, 0, 1); 2];
        all[..spans.len()].copy_from_slice(spans);
        Self { spans: all, count: spans.len() }
    }
}
