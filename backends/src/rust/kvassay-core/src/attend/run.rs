//! The rows of one KV head, from queries to outputs.

use super::Worker;
use super::ahead::Ahead;
use super::job::{Call, Job, MOST_ROWS, Row, Softmax};
use crate::arith::ex2;
use crate::family;
use crate::layout::Part;
use crate::plan::{CHUNK_PAGES, LN2};
use crate::spec::CENTRE_FROZEN;
use crate::transform::{MOST_CHANNELS, Stream};

impl<'a, 'c, 'w> Job<'a, 'c, 'w> {
    /// Rows `first .. first + count` of a head, in order of query, then query head; their queries are made.
    pub fn new(call: &'a Call<'c>, head: usize, first: usize, count: usize, worker: &'a mut Worker<'w>) -> Self {
        let kernels = call.plan.kernels();
        let mut job = Self { call, kernels, head, count, rows: [Row::default(); MOST_ROWS], worker, scanned: 0 };
        let group = call.plan.group();
        for (r, row) in job.rows[..count].iter_mut().enumerate() {
            row.query = ((first + r) / group) as u64;
            row.head = head * group + (first + r) % group;
            row.visible = call.visible(row.query);
            row.start = call.start(row.visible);
        }
        job.make_queries();
        job
    }

    fn make_queries(&mut self) {
        let plan = self.call.plan;
        let d = plan.d();
        for (row, ql) in self.rows[..self.count].iter().zip(self.worker.ql.chunks_exact_mut(d)) {
            let at = (row.query as usize * usize::from(plan.spec.query_heads) + row.head) * d;
            for (ql, q) in ql.iter_mut().zip(&self.call.q[at..at + d]) {
                let x = q * plan.query_scale;
                *ql = if x.abs() < 2f32.powi(-64) { 0.0 } else { x };
            }
        }
        family::of(plan.spec.keys()).make_queries(self);
        if plan.spec.key_centring() == CENTRE_FROZEN && !self.call.state.key_mean.is_empty() {
            let mean = &self.call.state.key_mean[2 * d * self.head..][..2 * d];
            let mut wide = [0.0; MOST_CHANNELS];
            self.kernels.widen(mean, &[], &mut wide[..d]);
            for (row, ql) in self.rows[..self.count].iter_mut().zip(self.worker.ql.chunks_exact(d)) {
                row.bias = crate::arith::d16(ql, &wide[..d]);
            }
        }
    }

    /// Writes the outputs of its rows; the result is how many pages were read.
    pub fn attend(mut self, out: &mut [f32]) -> u64 {
        let used = self.count * self.call.plan.d();
        self.attend_recent();
        self.worker.total[..used].fill(0.0);
        for row in &mut self.rows[..self.count] {
            row.total = Softmax { m: row.recent.m, l: 0.0 };
        }
        let first = self.call.first_needed(self.rows[0].visible);
        let sealed = self.call.sealed;
        let mut page = first;
        while page < sealed {
            let end = ((page / CHUNK_PAGES + 1) * CHUNK_PAGES).min(sealed);
            self.attend_chunk(page, end);
            self.fold_chunk();
            page = end;
        }
        self.finish(out);
        self.scanned
    }

    fn attend_chunk(&mut self, from: u64, to: u64) {
        let used = self.count * self.call.plan.d();
        self.worker.acc[..used].fill(0.0);
        for row in &mut self.rows[..self.count] {
            row.chunk = Softmax { m: row.recent.m, l: 0.0 };
            row.touched = false;
        }
        let mut ahead = Ahead::new(self, |_| true, self.count + 2); // logits, rows, values
        for page in from..to {
            self.attend_page(page, &mut ahead);
        }
    }

    fn fold_chunk(&mut self) {
        let d = self.call.plan.d();
        let accs = self.worker.total.chunks_exact_mut(d).zip(self.worker.acc.chunks_exact(d));
        for (row, (total, acc)) in self.rows[..self.count].iter_mut().zip(accs) {
            let Some(chunk) = row.chunk.m.filter(|_| row.touched) else { continue };
            let before = row.total.m.unwrap_or(chunk);
            let m = if chunk > before { chunk } else { before };
            let (al, be) = (ex2(before - m), ex2(chunk - m));
            row.total = Softmax { m: Some(m), l: row.total.l * al + row.chunk.l * be };
            self.kernels.blend_rows(total, acc, al, be);
        }
    }

    fn finish(&mut self, out: &mut [f32]) {
        let plan = self.call.plan;
        let d = plan.d();
        let rotated = plan.spec.values().rotated();
        let read = if rotated { plan.read } else { 1.0 }; // a product with 1 is exact
        if rotated {
            self.kernels.inverse(plan.transform(Stream::Values), &mut self.worker.total[..self.count * d]);
        }
        let mut mean = [0.0; MOST_CHANNELS];
        if plan.spec.value_centring() == CENTRE_FROZEN && !self.call.state.value_mean.is_empty() {
            self.kernels.widen(&self.call.state.value_mean[2 * d * self.head..][..2 * d], &[], &mut mean[..d]);
        }
        for (r, row) in self.rows[..self.count].iter().enumerate() {
            let at = (row.query as usize * usize::from(plan.spec.query_heads) + row.head) * d;
            let a0 = match (row.recent.m, row.total.m) {
                (Some(m0), Some(m)) => ex2(m0 - m),
                _ => 1.0,
            };
            let (l, sum) = (row.total.l, row.total.l + row.recent.l * a0);
            let parts = self.worker.total[r * d..].iter().zip(&self.worker.recent[r * d..]).zip(&mean);
            for (out, ((o, recent), mean)) in out[at..at + d].iter_mut().zip(parts) {
                // Without centring l * mean is 0, and adding that changes no bit of a result to which +0 is added.
                *out = (o * read + l * mean + recent * a0) / sum + 0.0;
            }
        }
    }

    /// Writes the scores of its rows, which are of one query.
    pub fn scores(mut self, out: &mut [f32]) -> u64 {
        let length = self.call.state.length as usize;
        self.score_recent(out, length);
        let plan = self.call.plan;
        let tokens = plan.page_tokens();
        let mut ahead = Ahead::new(&self, Part::of_keys, self.count + 1); // logits, rows
        for page in self.call.first_needed(self.rows[0].visible)..self.call.sealed {
            let (from, to) = self.attended(0, page);
            if from == to {
                continue;
            }
            let next = ahead.page(&self, page + 1);
            ahead.ask(self.kernels, next);
            self.page_logits(self.call.page(page), 0, self.count);
            let first = self.call.page_start(page) as usize;
            for (r, row) in self.rows[..self.count].iter().enumerate() {
                let t = &self.worker.t[r * self.worker.t_stride()..][..tokens];
                for (j, t) in t.iter().enumerate().take(to).skip(from) {
                    out[row.head * length + first + j] = t * LN2;
                }
                ahead.ask(self.kernels, next);
            }
        }
        self.scanned
    }
}
