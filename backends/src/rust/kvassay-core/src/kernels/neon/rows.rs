//! Rows of fp16.

use std::arch::aarch64::*;

use super::super::{Fp16Rows, body};
use super::lanes::{Sixteen, add_product, get, get8, narrow8, narrow8_finite, put, put_bytes, tree, widen16, zeros};
use crate::half;

/// Rows that share what is widened.
const ROWS: usize = 4;

/// `f` with the number of rows as a constant.
macro_rules! for_rows {
    ($rows:expr, $f:ident($($arg:expr),*)) => {
        match $rows {
            1 => $f::<1>($($arg),*),
            2 => $f::<2>($($arg),*),
            3 => $f::<3>($($arg),*),
            _ => $f::<4>($($arg),*),
        }
    };
}

#[target_feature(enable = "neon")]
pub fn narrow(x: &[f32], out: &mut [u8]) -> bool {
    let limit = vdupq_n_f32(half::LARGEST);
    let mut good = vdupq_n_u32(u32::MAX);
    let (whole, rest) = x.as_chunks::<8>();
    let (halves, tail) = out.split_at_mut(16 * whole.len());
    for (x, out) in whole.iter().zip(halves.as_chunks_mut::<16>().0) {
        let [low, high] = get8(x);
        good = vandq_u32(good, vandq_u32(vcaleq_f32(low, limit), vcaleq_f32(high, limit)));
        put_bytes(out, narrow8(low, high));
    }
    body::narrow(rest, tail) && vminvq_u32(good) == u32::MAX
}

#[target_feature(enable = "neon")]
pub fn widen(x: &[u8], mean: &[u8], out: &mut [f32]) {
    // Rows are of a multiple of 16, steps and minima of a multiple of 16 too.
    if mean.is_empty() {
        for (x, out) in x.as_chunks::<32>().0.iter().zip(out.as_chunks_mut::<16>().0) {
            put(out, widen16(x));
        }
        return;
    }
    for ((x, mean), out) in x.as_chunks::<32>().0.iter().zip(mean.as_chunks::<32>().0).zip(out.as_chunks_mut::<16>().0)
    {
        let (x, mean) = (widen16(x), widen16(mean));
        put(out, [0, 1, 2, 3].map(|i| vsubq_f32(x[i], mean[i])));
    }
}

#[target_feature(enable = "neon")]
pub fn dots(q: &[f32], d: usize, x: Fp16Rows<'_>, t: &mut [f32], t_stride: usize) {
    for (i, q) in q.chunks(ROWS * d).enumerate() {
        let t = &mut t[i * ROWS * t_stride..];
        for_rows!(q.len() / d, dots_rows(q, d, x, t, t_stride));
    }
}

#[target_feature(enable = "neon")]
fn dots_rows<const R: usize>(q: &[f32], d: usize, x: Fp16Rows<'_>, t: &mut [f32], t_stride: usize) {
    let q: [&[[f32; 16]]; R] = std::array::from_fn(|r| q[r * d..(r + 1) * d].as_chunks().0);
    for token in 0..x.count {
        let x = x.row(token, d).as_chunks::<32>().0;
        let mut sums = [zeros(); R];
        for (n, x) in x.iter().enumerate() {
            let x = widen16(x);
            for (q, sums) in q.iter().zip(&mut sums) {
                // SAFETY: q has d numbers, as x has.
                let q = get(unsafe { q.get_unchecked(n) });
                for i in 0..4 {
                    sums[i] = add_product(sums[i], q[i], x[i]);
                }
            }
        }
        for r in 0..R {
            t[r * t_stride + token] = tree(sums[r]);
        }
    }
}

/// One row x for rows of q, `stride` numbers apart.
#[target_feature(enable = "neon")]
pub fn dot_each(q: &[f32], stride: usize, x: &[u8], out: &mut [f32]) {
    let x = x.as_chunks::<32>().0;
    for (row, out) in out.iter_mut().enumerate() {
        let q = q[row * stride..][..16 * x.len()].as_chunks::<16>().0;
        let mut sums = zeros();
        for (q, x) in q.iter().zip(x) {
            let (q, x) = (get(q), widen16(x));
            for i in 0..4 {
                sums[i] = add_product(sums[i], q[i], x[i]);
            }
        }
        *out = tree(sums);
    }
}

#[target_feature(enable = "neon")]
pub fn mean(rows: Fp16Rows<'_>, d: usize, mean: &mut [u8]) {
    let count = vdupq_n_f32(rows.count as f32);
    for (n, mean) in mean[..2 * d].as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let mut sums = zeros();
        for j in 0..rows.count {
            let x = widen16(&rows.row(j, d).as_chunks().0[n]);
            sums = [0, 1, 2, 3].map(|i| vaddq_f32(sums[i], x[i]));
        }
        for (i, mean) in mean.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            put_bytes(mean, narrow8_finite([0, 1].map(|k| vdivq_f32(sums[2 * i + k], count))));
        }
    }
}

#[target_feature(enable = "neon")]
pub fn weighted(p: &[f32], p_stride: usize, d: usize, x: Fp16Rows<'_>, acc: &mut [f32]) {
    for (i, acc) in acc.chunks_mut(ROWS * d).enumerate() {
        let p = &p[i * ROWS * p_stride..];
        for_rows!(acc.len() / d, weighted_rows(p, p_stride, d, x, acc));
    }
}

#[target_feature(enable = "neon")]
fn weighted_rows<const R: usize>(p: &[f32], p_stride: usize, d: usize, x: Fp16Rows<'_>, acc: &mut [f32]) {
    let p: [&[f32]; R] = std::array::from_fn(|r| &p[r * p_stride..r * p_stride + x.count]);
    for c in (0..d).step_by(16) {
        let mut sums = [zeros(); R];
        for (r, sums) in sums.iter_mut().enumerate() {
            *sums = get(acc[r * d + c..].first_chunk().expect("sixteen channels"));
        }
        for token in 0..x.count {
            let x: Sixteen = widen16(x.data[token * x.stride + 2 * c..].first_chunk().expect("sixteen channels"));
            for (p, sums) in p.iter().zip(&mut sums) {
                // SAFETY: as many weights as tokens, by the cut above.
                let p = vdupq_n_f32(unsafe { *p.get_unchecked(token) });
                for i in 0..4 {
                    sums[i] = add_product(sums[i], p, x[i]);
                }
            }
        }
        for (r, sums) in sums.into_iter().enumerate() {
            put(acc[r * d + c..].first_chunk_mut().expect("sixteen channels"), sums);
        }
    }
}
