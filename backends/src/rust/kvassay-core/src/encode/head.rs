//! One head of a page that is being written.

use crate::kernels::{Kernels, Workspace};
use crate::layout::Part;
use crate::plan::Plan;

pub(crate) struct Head<'a, 'w> {
    pub plan: &'a Plan,
    pub kernels: &'static Kernels,
    pub head: usize,
    pub page: &'a mut [u8],
    pub work: &'a mut Workspace<'w>,
}

impl Head<'_, '_> {
    /// The head's part of a stream.
    pub fn part(&mut self, part: Part) -> &mut [u8] {
        &mut self.page[self.plan.layout.range(part, self.head)]
    }
}
