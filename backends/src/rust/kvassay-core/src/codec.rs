//! Codebooks (numeric contract, section 5) and where codes of which width lie.

use crate::arith::hex;
use crate::spec::Family;

/// Largest number of thresholds of a codebook.
const MOST: usize = 7;

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

    /// The codec of a mode; no codes for fp16.
    pub fn new(family: Family, mode: u8, d: usize) -> Self {
        let twice = usize::from(mode & 15);
        match family {
            Family::Fp16 => Self::of(&[]),
            Family::Kivi => {
                let mut table = [0; 16];
                (0..1 << (twice / 2)).for_each(|code| table[code] = code as i8);
                Self::of(&[Span { first: 0, channels: d, bits: twice / 2, table, thresholds: [0.0; MOST] }])
            }
            Family::Turbo | Family::TurboQjl => match twice {
                4 => Self::of(&[turbo(0, d, &TWO)]),
                5 => Self::of(&[turbo(0, d / 2, &TWO_HALF_LOW), turbo(d / 2, d / 2, &TWO_HALF_HIGH)]),
                6 => Self::of(&[turbo(0, d, &THREE)]),
                7 => Self::of(&[turbo(0, d / 2, &THREE_HALF_LOW), turbo(d / 2, d / 2, &THREE_HALF_HIGH)]),
                _ => Self::of(&[turbo(0, d, &FOUR)]),
            },
        }
    }

    /// Signs: a set bit is +1.
    pub fn signs(d: usize) -> Self {
        let mut table = [0; 16];
        table[..2].copy_from_slice(&[-1, 1]);
        Self::of(&[Span { first: 0, channels: d, bits: 1, table, thresholds: [0.0; MOST] }])
    }

    fn of(spans: &[Span]) -> Self {
        let none = Span { first: 0, channels: 0, bits: 1, table: [0; 16], thresholds: [0.0; MOST] };
        let mut all = [none; 2];
        all[..spans.len()].copy_from_slice(spans);
        Self { spans: all, count: spans.len() }
    }
}

/// Positive centroids, and the bits of the thresholds.
struct Book(&'static [i8], &'static [u32]);

const TWO: Book = Book(&[3, 10], &[hex(0xf6a4f8, -1)]);
const THREE: Book = Book(&[7, 22, 39, 62], &[hex(0x012430, -1), hex(0x0e7118, 0), hex(0xbfc7d8, 0)]);
const FOUR: Book = Book(
    &[3, 9, 15, 21, 28, 36, 46, 61],
    &[
        hex(0x134566, -2),
        hex(0x134566, -1),
        hex(0x9ce818, -1),
        hex(0x190182, 0),
        hex(0x6f0732, 0),
        hex(0xd64138, 0),
        hex(0x32d004, 1),
    ],
);
const TWO_HALF_LOW: Book = Book(&[9, 30], &[hex(0xf5a7a6, -1)]);
const TWO_HALF_HIGH: Book = Book(&[5, 15, 27, 43], &[hex(0x014248, -1), hex(0x0e1f32, 0), hex(0xc233fe, 0)]);
const THREE_HALF_LOW: Book = Book(&[4, 12, 21, 34], &[hex(0x03518e, -1), hex(0x0b6c1a, 0), hex(0xbdb42a, 0)]);
const THREE_HALF_HIGH: Book = Book(
    &[2, 6, 10, 15, 20, 26, 33, 43],
    &[
        hex(0x03518e, -2),
        hex(0x03518e, -1),
        hex(0x952f6c, -1),
        hex(0x1ba132, 0),
        hex(0x74c53a, 0),
        hex(0xde1e5c, 0),
        hex(0x33f0d8, 1),
    ],
);

fn turbo(first: usize, channels: usize, book: &Book) -> Span {
    let half = book.0.len();
    let mut span = Span { first, channels, bits: half.ilog2() as usize + 1, table: [0; 16], thresholds: [0.0; MOST] };
    for (m, centroid) in book.0.iter().enumerate() {
        span.table[half + m] = *centroid;
        span.table[half - 1 - m] = -centroid;
    }
    for (threshold, bits) in span.thresholds.iter_mut().zip(book.1) {
        *threshold = f32::from_bits(*bits);
    }
    span
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codebooks_mirror_and_thresholds_are_midpoints() {
        for mode in 0x14..=0x18 {
            for span in Codec::new(Family::Turbo, mode, 64).spans() {
                let n = 1 << span.bits;
                assert!((0..n).all(|code| span.table[code] == -span.table[n - 1 - code]));
                let half = &span.table[n / 2..n];
                // A threshold lies midway between its centroids, in one unit for all.
                let unit = |m: usize| span.thresholds[m] / (f32::from(half[m]) + f32::from(half[m + 1]));
                assert!((1..half.len() - 1).all(|m| (unit(m) / unit(0) - 1.0).abs() < 2e-6));
            }
        }
    }
}
