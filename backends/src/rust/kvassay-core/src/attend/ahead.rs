//! Asks for the page that is next. Pages lie apart, and what fetches ahead by itself stops at the end of each stream. Some
//! after each step: asked for at once, lines wait for each other, and everything else for them.

use super::job::Job;
use crate::kernels::Kernels;
use crate::layout::{PARTS, Part};

/// A head's part of some streams of a page, and how much of it was asked for.
pub(crate) struct Ahead {
    parts: [(usize, usize); PARTS.len()],
    count: usize,
    /// To ask for after each step.
    bytes: usize,
    next: usize,
    at: usize,
}

impl Ahead {
    /// All of the streams that are `wanted` in so many steps.
    pub fn new(job: &Job<'_, '_, '_>, wanted: fn(Part) -> bool, steps: usize) -> Self {
        let mut ahead = Self { parts: [(0, 0); PARTS.len()], count: 0, bytes: 0, next: 0, at: 0 };
        let wanted = PARTS.iter().filter(|(part, _)| wanted(*part));
        for range in wanted.map(|(part, _)| job.call.plan.layout.range(*part, job.head)).filter(|r| !r.is_empty()) {
            ahead.bytes += range.len();
            ahead.parts[ahead.count] = (range.start, range.end);
            ahead.count += 1;
        }
        ahead.bytes = (ahead.bytes / steps + 1).next_multiple_of(64);
        ahead
    }

    /// Begins with this page, if it is sealed.
    pub fn page<'c>(&mut self, job: &Job<'_, 'c, '_>, page: u64) -> Option<&'c [u8]> {
        (self.next, self.at) = (0, self.parts[0].0);
        (page < job.call.sealed).then(|| job.call.page(page))
    }

    /// The next share of the page.
    pub fn ask(&mut self, kernels: &Kernels, page: Option<&[u8]>) {
        let Some(page) = page else { return };
        let mut left = self.bytes;
        while self.next < self.count {
            let end = self.parts[self.next].1;
            let stop = end.min(self.at + left);
            kernels.prefetch(&page[self.at..stop]);
            left -= stop - self.at;
            self.at = stop;
            if stop < end {
                return;
            }
            self.next += 1;
            self.at = self.parts.get(self.next).map_or(0, |part| part.0);
        }
    }
}
