//! The portable variant.

use super::tiles::pack;
use super::{Fp16Rows, Kernels, Queries, body};
use crate::codec::{Codec, Span};
use crate::transform::Transform;

/// Plain Rust, for whatever instruction set the target has.
pub struct Scalar;

impl Kernels for Scalar {
    fn narrow(&self, x: &[f32], out: &mut [u8]) -> bool {
        body::narrow(x, out)
    }
    fn widen(&self, x: &[u8], mean: &[u8], out: &mut [f32]) {
        body::widen(x, mean, out);
    }
    fn forward(&self, t: &Transform, x: &mut [f32]) {
        body::forward(t, x, body::hadamard);
    }
    fn inverse(&self, t: &Transform, x: &mut [f32]) {
        body::inverse(t, x, body::hadamard);
    }
    fn quantize(&self, codec: &Codec, unbiased: bool, y: &[f32], codes: &mut [u8], scales: &mut [f32]) {
        body::quantize(codec, unbiased, y, codes, scales);
    }
    fn residual(&self, codec: &Codec, y: &mut [f32], codes: &[u8], scale: f32) -> f32 {
        body::residual(codec, y, codes, scale)
    }
    fn affine_keys(&self, bits: usize, r: &[f32], d: usize, codes: &mut [u8], steps: &mut [u8], minima: &mut [u8]) {
        body::affine_keys(bits, r, d, codes, steps, minima);
    }
    fn affine_values(&self, bits: usize, r: &[f32], codes: &mut [u8]) -> (u16, u16) {
        body::affine_values(bits, r, codes)
    }
    fn pack_keys(&self, codec: &Codec, d: usize, codes: &[u8], tiles: &mut [u8]) {
        body::pack_keys(codec, d, codes, tiles, pack);
    }
    fn pack_values(&self, codec: &Codec, d: usize, codes: &[u8], tiles: &mut [u8]) {
        body::pack_values(codec, d, codes, tiles, pack);
    }
    fn query8(&self, z: &[f32], qi: &mut [i8]) -> f32 {
        body::query8(z, qi)
    }
    fn query15(&self, q: &[f32], step: &[f32], qi: &mut [i16]) -> f32 {
        body::query15(q, step, qi)
    }
    fn keyscan(&self, codec: &Codec, d: usize, tiles: &[u8], tokens: usize, q: Queries<'_>, out: &mut [i32]) {
        body::keyscan(codec, d, tiles, tokens, q.qi, out);
    }
    fn keyscan15(&self, codec: &Codec, d: usize, tiles: &[u8], tokens: usize, q: &[i16], out: &mut [i32]) {
        body::keyscan15(codec, d, tiles, tokens, q, out);
    }
    fn valuesum(&self, span: &Span, tiles: &[u8], tokens: usize, w: &[i16], out: &mut [i32]) {
        body::valuesum(span, tiles, tokens, w, out);
    }
    fn maximum(&self, t: &[f32]) -> f32 {
        body::maximum(t)
    }
    fn exponentials(&self, t: &mut [f32], maximum: f32, stripes: &mut [f32; 16], phase: usize) {
        body::exponentials(t, maximum, stripes, phase);
    }
    fn dots(&self, q: &[f32], d: usize, x: Fp16Rows<'_>, t: &mut [f32], t_stride: usize) {
        body::dots(q, d, x, t, t_stride);
    }
    fn weighted(&self, p: &[f32], p_stride: usize, d: usize, x: Fp16Rows<'_>, acc: &mut [f32]) {
        body::weighted(p, p_stride, d, x, acc);
    }
    fn logits(&self, sum: &[i32], su: &[f32], factor: f32, t: &mut [f32]) {
        body::logits(sum, su, factor, t);
    }
    fn add_logits(&self, sum: &[i32], su: &[f32], factor: f32, t: &mut [f32]) {
        body::add_logits(sum, su, factor, t);
    }
    fn affine_logits(&self, sum: &[i32], scale: f32, bias: f32, t: &mut [f32]) {
        body::affine_logits(sum, scale, bias, t);
    }
    fn shift(&self, t: &mut [f32], bias: f32) {
        body::shift(t, bias);
    }
    fn weigh(&self, p: &[f32], scale: &[f32], iw: &mut [i16]) -> f32 {
        body::weigh(p, scale, iw)
    }
    fn blend(&self, acc: &mut [f32], sum: &[i32], al: f32, f: f32) {
        body::blend(acc, sum, al, f);
    }
    fn blend_affine(&self, acc: &mut [f32], sum: &[i32], al: f32, scale: f32, offset: f32, be: f32) {
        body::blend_affine(acc, sum, al, scale, offset, be);
    }
    fn blend_rows(&self, acc: &mut [f32], x: &[f32], al: f32, be: f32) {
        body::blend_rows(acc, x, al, be);
    }
}
