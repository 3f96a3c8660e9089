//! Weighted sums over the values of one page (numeric contract, section 10, step 4).

use super::MOST_ROWS;
use super::job::Job;
use super::pages::Active;
use crate::kernels::Fp16Rows;
use crate::layout::Part;
use crate::plan::GROUP;
use crate::scale;
use crate::spec::Family;

/// `const(1/16383)`.
const WEIGHT: f32 = (1.0 / 16383.0f64) as f32;

impl Job<'_, '_, '_> {
    /// Adds a page to the sums of the active rows, whose weights lie in t in their order.
    pub fn page_values(&mut self, page: &[u8], active: &[Active]) {
        match self.call.plan.spec.values() {
            Family::Fp16 => self.fp16_values(page, active),
            Family::Kivi => {
                for first in (0..self.call.plan.d()).step_by(GROUP) {
                    self.kivi_values(page, active, first);
                }
            }
            _ => self.turbo_values(page, active),
        }
    }

    /// Integer weights of all active rows; their largest.
    fn weigh(&mut self, count: usize) -> [f32; MOST_ROWS] {
        let (tokens, stride) = (self.call.plan.page_tokens(), self.worker.t_stride());
        let mut largest = [0.0; MOST_ROWS];
        for (i, largest) in largest.iter_mut().enumerate().take(count) {
            let worker = &mut *self.worker;
            let (p, iw) = (&worker.t[i * stride..][..tokens], &mut worker.w[i * tokens..][..tokens]);
            *largest = self.kernels.weigh(p, &worker.scale[..tokens], iw);
        }
        largest
    }

    fn turbo_values(&mut self, page: &[u8], active: &[Active]) {
        let plan = self.call.plan;
        let (d, tokens) = (plan.d(), plan.page_tokens());
        let part = |part| &page[plan.layout.range(part, self.head)];
        let (stored, maximum) = (part(Part::ValueScales), part(Part::ValueMaxima));
        let mut codes = part(Part::ValueCodes);
        let unit = scale::load(plan.spec.scale_kind, stored, maximum, &mut self.worker.scale[..tokens]);
        let largest = self.weigh(active.len());
        let worker = &mut *self.worker;
        for span in plan.value.spans() {
            let (tiles, rest) = codes.split_at(span.bytes(tokens));
            codes = rest;
            let sums = &mut worker.sums[..active.len() * span.channels];
            self.kernels.valuesum(span, tiles, tokens, &worker.w[..active.len() * tokens], sums);
            for ((row, largest), sums) in active.iter().zip(&largest).zip(sums.chunks_exact(span.channels)) {
                let acc = &mut worker.acc[row.row * d + span.first..][..span.channels];
                self.kernels.blend(acc, sums, row.al, largest * WEIGHT * unit * row.be);
            }
        }
    }

    /// One group of channels: steps lie along tokens, so each has weights of its own.
    fn kivi_values(&mut self, page: &[u8], active: &[Active], first: usize) {
        let plan = self.call.plan;
        let (d, tokens, stride) = (plan.d(), plan.page_tokens(), self.worker.t_stride());
        let part = |part| &page[plan.layout.range(part, self.head)];
        let of_group = 2 * tokens * (first / GROUP)..2 * tokens * (first / GROUP + 1);
        let mut span = plan.value.spans()[0];
        let before = tokens * first * span.bits / 8;
        span.channels = (d - first).min(GROUP);
        let codes = &part(Part::ValueCodes)[before..before + span.bytes(tokens)];
        let minima = &part(Part::ValueMinima)[of_group.clone()];
        self.kernels.widen(&part(Part::ValueSteps)[of_group], &[], &mut self.worker.scale[..tokens]);
        let largest = self.weigh(active.len());
        let worker = &mut *self.worker;
        let sums = &mut worker.sums[..active.len() * span.channels];
        self.kernels.valuesum(&span, codes, tokens, &worker.w[..active.len() * tokens], sums);
        let mut offsets = [0.0; MOST_ROWS];
        self.kernels.dot_each(worker.t, stride, &minima[..2 * tokens], &mut offsets[..active.len()]);
        for (i, (row, sums)) in active.iter().zip(sums.chunks_exact(span.channels)).enumerate() {
            let acc = &mut worker.acc[row.row * d + first..][..span.channels];
            self.kernels.blend_affine(acc, sums, row.al, largest[i] * WEIGHT, offsets[i], row.be);
        }
    }

    fn fp16_values(&mut self, page: &[u8], active: &[Active]) {
        let plan = self.call.plan;
        let (d, stride) = (plan.d(), self.worker.t_stride());
        let data = &page[plan.layout.range(Part::ValueCodes, self.head)];
        let values = Fp16Rows { data, stride: 2 * d, count: plan.page_tokens() };
        let worker = &mut *self.worker;
        let x = &mut worker.x[..active.len() * d];
        x.fill(0.0);
        self.kernels.weighted(worker.t, stride, d, values, x);
        for (row, x) in active.iter().zip(x.chunks_exact(d)) {
            self.kernels.blend_rows(&mut worker.acc[row.row * d..][..d], x, row.al, row.be);
        }
    }
}
