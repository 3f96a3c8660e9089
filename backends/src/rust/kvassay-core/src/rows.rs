//! fp16 tokens in memory.

use crate::kernels::Fp16Rows;

/// fp16 rows of several tokens and heads; strides in bytes.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    /// Token 0, head 0 starts here.
    pub data: &'a [u8],
    /// Bytes from token to token.
    pub token_stride: usize,
    /// Bytes from head to head.
    pub head_stride: usize,
    /// Tokens.
    pub count: usize,
}

impl<'a> Rows<'a> {
    /// The rows of one head.
    pub fn head(&self, head: usize) -> Fp16Rows<'a> {
        let data = if self.count == 0 { &[] } else { &self.data[head * self.head_stride..] };
        Fp16Rows { data, stride: self.token_stride, count: self.count }
    }
}
