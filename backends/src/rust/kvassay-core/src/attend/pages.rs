//! One page: logits, softmax and values of the rows that attend it (numeric contract, section 10, steps 1 to 4).

use super::ahead::Ahead;
use super::job::{Active, Job, MOST_ROWS};
use crate::arith::{ex2, tree};
use crate::family;
use crate::kernels::Fp16Rows;
use crate::layout::Part;
use crate::spec::{CENTRE_NONE, CENTRE_PAGE};

/// Pages whose largest logit is this far below the maximum are skipped.
const NEGLIGIBLE: f32 = -40.0;

impl Job<'_, '_, '_> {
    pub fn attend_page(&mut self, page: u64, ahead: &mut Ahead) {
        let (mut row0, mut row1) = (self.count, 0);
        for r in 0..self.count {
            let (from, to) = self.attended(r, page);
            if from < to {
                row0 = row0.min(r);
                row1 = r + 1;
            }
        }
        if row0 >= row1 {
            return;
        }
        let bytes = self.call.page(page);
        let next = ahead.page(self, page + 1);
        ahead.ask(self.kernels, next);
        self.page_logits(bytes, row0, row1);
        let mut active = [Active::default(); MOST_ROWS];
        let mut count = 0;
        for r in row0..row1 {
            let (from, to) = self.attended(r, page);
            if from < to
                && let Some(found) = self.page_softmax(r, from, to, count)
            {
                active[count] = found;
                count += 1;
            }
            ahead.ask(self.kernels, next);
        }
        ahead.ask(self.kernels, next);
        if count > 0 {
            family::of(self.call.plan.spec.values()).add_values(self, bytes, &active[..count]);
        }
    }

    /// Logits of rows row0..row1 of a page, each at its place in t.
    pub fn page_logits(&mut self, page: &[u8], row0: usize, row1: usize) {
        self.scanned += 1;
        let spec = &self.call.plan.spec;
        family::of(spec.keys()).logits(self, page, row0..row1);
        if spec.key_centring() != CENTRE_NONE {
            self.centre(page, row0, row1);
        }
    }

    fn centre(&mut self, page: &[u8], row0: usize, row1: usize) {
        let plan = self.call.plan;
        let (d, tokens, stride) = (plan.d(), plan.page_tokens(), self.worker.t_stride());
        let mut bias = [0.0; MOST_ROWS];
        if plan.spec.key_centring() == CENTRE_PAGE {
            let mean = Fp16Rows { data: self.part(page, Part::KeyMean), stride: 0, count: 1 };
            self.kernels.dots(&self.worker.ql[row0 * d..row1 * d], d, mean, &mut bias, 1);
        } else {
            bias.iter_mut().zip(&self.rows[row0..row1]).for_each(|(bias, row)| *bias = row.bias);
        }
        for (i, r) in (row0..row1).enumerate() {
            self.kernels.shift(&mut self.worker.t[r * stride..][..tokens], bias[i]);
        }
    }

    /// Weights of a row into place `i` of t; None where the page is skipped.
    fn page_softmax(&mut self, r: usize, from: usize, to: usize, i: usize) -> Option<Active> {
        let (stride, tokens) = (self.worker.t_stride(), self.call.plan.page_tokens());
        let row = &mut self.rows[r];
        row.touched = true;
        let mp = self.kernels.maximum(&self.worker.t[r * stride + from..r * stride + to]);
        let before = row.chunk.m.unwrap_or(mp);
        row.chunk.m = Some(before);
        if mp - before < NEGLIGIBLE {
            return None;
        }
        if i != r {
            self.worker.t.copy_within(r * stride + from..r * stride + to, i * stride + from);
        }
        let t = &mut self.worker.t[i * stride..][..tokens];
        t[..from].fill(0.0);
        t[to..].fill(0.0);
        let mut stripes = [0.0; 16];
        self.kernels.exponentials(&mut t[from..to], mp, &mut stripes, from);
        // Of the larger maximum the factor is ex2(0), which is 1.
        let (m, al, be) = if mp > before { (mp, ex2(before - mp), 1.0) } else { (before, 1.0, ex2(mp - before)) };
        row.chunk.l = row.chunk.l * al + tree(stripes) * be;
        row.chunk.m = Some(m);
        Some(Active { row: r, al, be })
    }
}
