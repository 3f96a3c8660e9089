//! The fp16 tokens: sinks, then residual (numeric contract, section 10, fp16 part).

use super::job::{Job, Row, Softmax};
use crate::arith::tree;
use crate::plan::LN2;

/// Indices of tokens, sinks and residual counted as one sequence.
type Range = std::ops::Range<usize>;

impl Job<'_, '_, '_> {
    fn sinks(&self) -> usize {
        self.call.state.sink_keys.count
    }

    /// fp16 tokens that are held.
    fn held(&self) -> usize {
        self.sinks() + self.call.state.residual_keys.count
    }

    /// Position of the first residual token.
    fn residual_start(&self) -> u64 {
        self.call.state.length - self.call.state.residual_keys.count as u64
    }

    /// What a row attends: of the sinks, of the residual.
    fn attended_recent(&self, row: &Row) -> [Range; 2] {
        let (sinks, base) = (self.sinks(), self.residual_start());
        let within = |position: u64| sinks + position.saturating_sub(base) as usize;
        let (from, to) = (within(row.start), within(row.visible));
        let held = self.held();
        [0..(sinks as u64).min(row.visible) as usize, from.min(held)..to.min(held).max(from.min(held))]
    }

    /// Logits of the tokens of a block into t, from its row's first entry on.
    fn recent_logits(&mut self, block: &Range) {
        let (d, stride, sinks) = (self.call.plan.d(), self.worker.t_stride(), self.sinks());
        let (q, t) = (&self.worker.ql[..self.count * d], &mut self.worker.t);
        let state = &self.call.state;
        if block.start < sinks {
            let keys = state.sink_keys.head(self.head).slice(block.start, block.end.min(sinks));
            self.kernels.dots(q, d, keys, t, stride);
        }
        if block.end > sinks {
            let from = block.start.max(sinks);
            let keys = state.residual_keys.head(self.head).slice(from - sinks, block.end - sinks);
            self.kernels.dots(q, d, keys, &mut t[from - block.start..], stride);
        }
    }

    fn blocks(&self) -> impl Iterator<Item = Range> + use<> {
        let (held, size) = (self.held(), self.worker.t_stride());
        (0..held).step_by(size).map(move |start| start..(start + size).min(held))
    }

    /// Maximum, sum and weighted values of the fp16 tokens of every row.
    pub fn attend_recent(&mut self) {
        let (d, stride) = (self.call.plan.d(), self.worker.t_stride());
        self.worker.recent[..self.count * d].fill(0.0);
        for block in self.blocks() {
            self.recent_logits(&block);
            for r in 0..self.count {
                for range in self.attended_recent(&self.rows[r]) {
                    let range = cut(&range, &block);
                    if !range.is_empty() {
                        let most = self.kernels.maximum(&self.worker.t[r * stride..][range]);
                        let m = &mut self.rows[r].recent.m;
                        *m = Some(m.map_or(most, |m| if most > m { most } else { m }));
                    }
                }
            }
        }
        let again = self.held() > stride;
        let mut sums = [(0usize, [0.0f32; 16]); super::job::MOST_ROWS];
        for block in self.blocks() {
            if again {
                self.recent_logits(&block);
            }
            for (r, (phase, stripes)) in sums.iter_mut().enumerate().take(self.count) {
                self.recent_weights(r, &block, phase, stripes);
            }
            self.add_recent_values(&block);
        }
        for (row, (_, stripes)) in self.rows[..self.count].iter_mut().zip(&sums) {
            row.recent = Softmax { l: tree(*stripes), ..row.recent };
        }
    }

    /// Logits of a row's block become weights, 0 where it does not attend.
    fn recent_weights(&mut self, r: usize, block: &Range, phase: &mut usize, stripes: &mut [f32; 16]) {
        let ranges = self.attended_recent(&self.rows[r]).map(|range| cut(&range, block));
        let maximum = self.rows[r].recent.m.unwrap_or(0.0);
        let stride = self.worker.t_stride();
        let t = &mut self.worker.t[r * stride..][..block.len()];
        let mut end = 0;
        for range in ranges {
            if range.is_empty() {
                continue;
            }
            t[end..range.start].fill(0.0);
            end = range.end;
            let count = range.len();
            self.kernels.exponentials(&mut t[range], maximum, stripes, *phase);
            *phase += count;
        }
        t[end..].fill(0.0);
    }

    fn add_recent_values(&mut self, block: &Range) {
        let (d, stride, sinks) = (self.call.plan.d(), self.worker.t_stride(), self.sinks());
        let (p, acc) = (&self.worker.t, &mut self.worker.recent[..self.count * d]);
        let state = &self.call.state;
        if block.start < sinks {
            let values = state.sink_values.head(self.head).slice(block.start, block.end.min(sinks));
            self.kernels.weighted(p, stride, d, values, acc);
        }
        if block.end > sinks {
            let from = block.start.max(sinks);
            let values = state.residual_values.head(self.head).slice(from - sinks, block.end - sinks);
            self.kernels.weighted(&p[from - block.start..], stride, d, values, acc);
        }
    }

    /// Scores of the fp16 tokens.
    pub fn score_recent(&mut self, out: &mut [f32], length: usize) {
        let (sinks, base) = (self.sinks(), self.residual_start() as usize);
        for block in self.blocks() {
            self.recent_logits(&block);
            for (r, row) in self.rows[..self.count].iter().enumerate() {
                for range in self.attended_recent(row) {
                    for i in cut(&range, &block) {
                        let token = block.start + i;
                        let position = if token < sinks { token } else { base + token - sinks };
                        out[row.head * length + position] = self.worker.t[r * self.worker.t_stride() + i] * LN2;
                    }
                }
            }
        }
    }
}

/// The part of a range in a block, counted from the block's start.
fn cut(range: &Range, block: &Range) -> Range {
    let from = range.start.clamp(block.start, block.end);
    let to = range.end.clamp(from, block.end);
    from - block.start..to - block.start
}
