//! Families of codecs: one file each, a row in `of`.

mod fp16;
mod kivi;
mod qjl;
mod turbo;

use std::ops::Range;

use crate::attend::job::{Active, Job};
use crate::codec::Codec;
use crate::encode::head::Head;
use crate::kernels::Fp16Rows;
use crate::layout::{HeadBytes, Parts};
use crate::spec::{Family, LayerSpec};
use crate::transform::Stream;

/// How a family stores keys or values, and how they are attended.
pub(crate) trait Stored: Sync {
    /// The codec of a mode.
    fn codec(&self, twice_bits: usize, d: usize) -> Codec;
    /// Bytes of the streams of one head of a page.
    fn streams(&self, spec: &LayerSpec, codec: &Codec, parts: &Parts, bytes: &mut HeadBytes);
    /// Writes the rows of a head, less their mean, to the streams of keys or values.
    fn encode(&self, head: &mut Head<'_, '_>, stream: Stream, rows: Fp16Rows<'_>, mean: &[u8]);
    /// Makes of the scaled queries what `logits` reads beside them.
    fn make_queries(&self, _job: &mut Job<'_, '_, '_>) {}
    /// Logits of some rows with a page, before centring, each at its place in t.
    fn logits(&self, job: &mut Job<'_, '_, '_>, page: &[u8], rows: Range<usize>);
    /// Adds a page to the sums of the active rows, whose weights lie in t in their order.
    fn add_values(&self, job: &mut Job<'_, '_, '_>, page: &[u8], active: &[Active]);
}

/// What a family does.
pub(crate) fn of(family: Family) -> &'static dyn Stored {
    match family {
        Family::Fp16 => &fp16::Fp16,
        Family::Turbo => &turbo::Turbo,
        Family::TurboQjl => &qjl::Qjl,
        Family::Kivi => &kivi::Kivi,
    }
}

impl Codec {
    /// The codec of a mode; no codes for fp16.
    pub fn new(family: Family, mode: u8, d: usize) -> Self {
        of(family).codec(usize::from(mode & 15), d)
    }
}
