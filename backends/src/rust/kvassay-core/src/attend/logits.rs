//! Logits of one page (numeric contract, section 8).

use std::ops::Range;

use super::MOST_ROWS;
use super::job::Job;
use crate::kernels::{Fp16Rows, Kernels, Queries, TOGETHER};
use crate::layout::Part;
use crate::plan::GROUP;
use crate::scale;
use crate::spec::{CENTRE_NONE, CENTRE_PAGE, Family};

impl<'c> Job<'_, 'c, '_> {
    fn part(&self, page: &'c [u8], part: Part) -> &'c [u8] {
        &page[self.call.plan.layout.range(part, self.head)]
    }

    /// Logits of rows row0..row1 of a page, each at its place in t.
    pub fn page_logits(&mut self, page: &'c [u8], row0: usize, row1: usize) {
        self.scanned += 1;
        let plan = self.call.plan;
        let (d, tokens, stride) = (plan.d(), plan.page_tokens(), self.worker.t_stride());
        match plan.spec.keys() {
            Family::Fp16 => {
                let keys = Fp16Rows { data: self.part(page, Part::KeyCodes), stride: 2 * d, count: tokens };
                let q = &self.worker.ql[row0 * d..row1 * d];
                self.kernels.dots(q, d, keys, &mut self.worker.t[row0 * stride..], stride);
            }
            Family::Kivi => {
                for first in (0..tokens).step_by(GROUP) {
                    self.kivi_group(page, first, row0, row1);
                }
            }
            Family::Turbo => self.turbo(page, row0, row1),
            Family::TurboQjl => {
                self.turbo(page, row0, row1);
                self.signs(page, row0, row1);
            }
        }
        if plan.spec.key_centring() != CENTRE_NONE {
            self.centre(page, row0, row1);
        }
    }

    fn turbo(&mut self, page: &'c [u8], row0: usize, row1: usize) {
        let plan = self.call.plan;
        let (d, tokens, stride) = (plan.d(), plan.page_tokens(), self.worker.t_stride());
        let (stored, maximum) = (self.part(page, Part::KeyScales), self.part(page, Part::KeyMaxima));
        let codes = self.part(page, Part::KeyCodes);
        let worker = &mut *self.worker;
        let unit = scale::load(plan.spec.scale_kind, stored, maximum, &mut worker.scale[..tokens]);
        let sums = &mut worker.sums[..(row1 - row0) * tokens];
        let queries = queries(self.kernels, d, row0..row1, worker.qi, worker.prepared[0], worker.arranged[0]);
        self.kernels.keyscan(&plan.key, d, codes, tokens, queries, sums);
        for (r, sums) in (row0..row1).zip(sums.chunks_exact(tokens)) {
            let t = &mut worker.t[r * stride..][..tokens];
            self.kernels.logits(sums, &worker.scale[..tokens], self.rows[r].qs * unit, t);
        }
    }

    fn signs(&mut self, page: &'c [u8], row0: usize, row1: usize) {
        let plan = self.call.plan;
        let (d, tokens, stride) = (plan.d(), plan.page_tokens(), self.worker.t_stride());
        let (stored, maximum) = (self.part(page, Part::KeyNorms), self.part(page, Part::NormMaxima));
        let codes = self.part(page, Part::KeySigns);
        let worker = &mut *self.worker;
        let unit = scale::load(plan.spec.scale_kind, stored, maximum, &mut worker.scale[..tokens]);
        let sums = &mut worker.sums[..(row1 - row0) * tokens];
        let queries = queries(self.kernels, d, row0..row1, worker.qi2, worker.prepared[1], worker.arranged[1]);
        self.kernels.keyscan(&plan.signs, d, codes, tokens, queries, sums);
        for (r, sums) in (row0..row1).zip(sums.chunks_exact(tokens)) {
            let t = &mut worker.t[r * stride..][..tokens];
            let factor = self.rows[r].qs2 * unit * plan.sign_gain;
            self.kernels.add_logits(sums, &worker.scale[..tokens], factor, t);
        }
    }

    /// Steps lie along channels, so each group of tokens has a query of its own.
    fn kivi_group(&mut self, page: &'c [u8], first: usize, row0: usize, row1: usize) {
        let plan = self.call.plan;
        let (d, stride, rows) = (plan.d(), self.worker.t_stride(), row1 - row0);
        let tokens = (plan.page_tokens() - first).min(GROUP);
        let of_group = 2 * d * (first / GROUP)..2 * d * (first / GROUP + 1);
        let steps = &self.part(page, Part::KeySteps)[of_group.clone()];
        let minima = &self.part(page, Part::KeyMinima)[of_group];
        let codes = &self.part(page, Part::KeyCodes)[plan.key.bytes(first)..plan.key.bytes(first + tokens)];
        let worker = &mut *self.worker;
        let (ql, step) = (&worker.ql[row0 * d..row1 * d], &mut worker.scale[..d]);
        self.kernels.widen(steps, &[], step);
        let (mut qs, mut bias) = ([0.0; MOST_ROWS], [0.0; MOST_ROWS]);
        let queries = ql.chunks_exact(d).zip(worker.w.chunks_exact_mut(d));
        for (qs, (ql, w)) in qs.iter_mut().zip(queries) {
            *qs = self.kernels.query15(ql, step, w);
        }
        self.kernels.dots(ql, d, Fp16Rows { data: minima, stride: 0, count: 1 }, &mut bias, 1);
        let sums = &mut worker.sums[..rows * tokens];
        self.kernels.keyscan15(&plan.key, d, codes, tokens, &worker.w[..rows * d], sums);
        for (i, sums) in sums.chunks_exact(tokens).enumerate() {
            let t = &mut worker.t[(row0 + i) * stride + first..][..tokens];
            self.kernels.affine_logits(sums, qs[i], bias[i], t);
        }
    }

    fn centre(&mut self, page: &'c [u8], row0: usize, row1: usize) {
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
}

/// Integer queries of some rows.
fn queries<'a>(
    kernels: &dyn Kernels,
    d: usize,
    rows: Range<usize>,
    qi: &'a [i8],
    prepared: &'a [i32],
    arranged: &'a [i32],
) -> Queries<'a> {
    let whole = rows.start.is_multiple_of(TOGETHER);
    Queries {
        qi: &qi[rows.start * d..rows.end * d],
        prepared: &prepared[rows.start * d / 8..rows.end * d / 8],
        arranged: if whole { &arranged[rows.start / TOGETHER * kernels.arranged(d)..] } else { &[] },
    }
}
