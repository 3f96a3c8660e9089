//! Working memory of one thread.

use super::job::MOST_ROWS;
use crate::kernels::TOGETHER;
use crate::plan::Plan;

/// Most fp16 tokens whose logits are kept; with more they are computed twice.
const KEPT: usize = 512;

/// How much working memory a plan takes, by type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    rows: usize,
    t_stride: usize,
    row: usize,
    wide: usize,
    scale: usize,
    /// Of one codec.
    arranged: usize,
}

impl Sizes {
    /// For this many rows at once, at most `MOST_ROWS` of which are taken.
    pub fn new(plan: &Plan, rows: usize) -> Self {
        let (d, p) = (plan.d(), plan.page_tokens());
        let spec = &plan.spec;
        let recent = u64::from(spec.sinks) + u64::from(spec.window) + p as u64;
        let rows = rows.clamp(1, MOST_ROWS);
        Self {
            rows,
            t_stride: p.max((recent.min(KEPT as u64) as usize).next_multiple_of(16)),
            row: d,
            wide: d.max(p),
            scale: d.max(p),
            arranged: rows.div_ceil(TOGETHER) * plan.kernels().arranged(d),
        }
    }

    /// Rows worked on together.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Numbers of type f32.
    pub fn floats(&self) -> usize {
        self.rows * (5 * self.row + self.t_stride) + self.scale
    }

    /// Numbers of type i32.
    pub fn ints(&self) -> usize {
        self.rows * (self.wide + self.row / 4) + 2 * self.arranged
    }

    /// Numbers of type i16.
    pub fn words(&self) -> usize {
        self.rows * self.wide
    }

    /// Numbers of type i8.
    pub fn bytes(&self) -> usize {
        self.rows * 2 * self.row
    }

    /// All of it.
    pub fn total(&self) -> usize {
        4 * (self.floats() + self.ints()) + 2 * self.words() + self.bytes()
    }
}

/// Working memory, cut to what it is used for; rows of `d` unless said otherwise.
pub struct Worker<'a> {
    sizes: Sizes,
    /// Scaled queries.
    pub(crate) ql: &'a mut [f32],
    /// Transformed queries, then sums over fp16 values.
    pub(crate) x: &'a mut [f32],
    /// Of a chunk.
    pub(crate) acc: &'a mut [f32],
    /// Of all chunks.
    pub(crate) total: &'a mut [f32],
    /// Of the fp16 tokens.
    pub(crate) recent: &'a mut [f32],
    /// Logits, then weights: rows of `t_stride`.
    pub(crate) t: &'a mut [f32],
    /// Scales of a page's tokens or channels.
    pub(crate) scale: &'a mut [f32],
    /// Integer sums: rows of tokens or channels.
    pub(crate) sums: &'a mut [i32],
    /// Weights of tokens or queries of 15 bits.
    pub(crate) w: &'a mut [i16],
    /// Queries of 7 bits, and their sign projections.
    pub(crate) qi: [&'a mut [i8]; 2],
    /// What the kernels prepared of both: rows of `d / 8`.
    pub(crate) prepared: [&'a mut [i32]; 2],
    /// What they arranged of both.
    pub(crate) arranged: [&'a mut [i32]; 2],
}

impl<'a> Worker<'a> {
    /// Cuts memory of these sizes.
    pub fn new(
        sizes: Sizes,
        floats: &'a mut [f32],
        ints: &'a mut [i32],
        words: &'a mut [i16],
        bytes: &'a mut [i8],
    ) -> Self {
        let row = sizes.rows * sizes.row;
        let mut rest = floats;
        let mut take = |n: usize| {
            let (taken, after) = std::mem::take(&mut rest).split_at_mut(n);
            rest = after;
            taken
        };
        let (ql, x, acc, total, recent) = (take(row), take(row), take(row), take(row), take(row));
        let (t, scale) = (take(sizes.rows * sizes.t_stride), take(sizes.scale));
        let (qi, signs_qi) = bytes.split_at_mut(row);
        let (sums, rest) = ints.split_at_mut(sizes.rows * sizes.wide);
        let (keys, rest) = rest.split_at_mut(row / 8);
        let (signs, rest) = rest.split_at_mut(row / 8);
        let (first, rest) = rest.split_at_mut(sizes.arranged);
        let (prepared, arranged) = ([keys, signs], [first, &mut rest[..sizes.arranged]]);
        Self { sizes, ql, x, acc, total, recent, t, scale, sums, w: words, qi: [qi, signs_qi], prepared, arranged }
    }

    /// Rows worked on together.
    pub fn rows(&self) -> usize {
        self.sizes.rows
    }

    /// Logits of a row.
    pub(crate) fn t_stride(&self) -> usize {
        self.sizes.t_stride
    }
}
