//! Rows of fp16.

use super::{Isa, MOST_ROW};
use crate::arith::d16;
use crate::half;
use crate::kernels::{Fp16Rows, for_rows};
use crate::transform::MOST_CHANNELS;

/// Rows that share what is widened.
const ROWS: usize = 4;
/// Tokens whose values are added at once.
const BLOCK: usize = 16;
/// Tokens whose products are summed at once.
const TOKENS: usize = 8;

/// Eight halves of at least eight.
#[inline(always)]
fn load<I: Isa>(halves: &[u8]) -> I::Eight {
    I::widen(halves.first_chunk().expect("eight halves"))
}

#[inline(always)]
fn get<I: Isa>(x: &[f32]) -> I::Eight {
    I::get(x.first_chunk().expect("eight floats"))
}

#[inline(always)]
fn put<I: Isa>(x: I::Eight, out: &mut [f32]) {
    I::put(x, out.first_chunk_mut().expect("eight floats"));
}

/// `s + a * b`, each rounded.
#[inline(always)]
fn add_product<I: Isa>(s: I::Eight, a: I::Eight, b: I::Eight) -> I::Eight {
    I::add(s, I::mul(a, b))
}

#[inline(always)]
pub fn narrow<I: Isa>(x: &[f32], out: &mut [u8]) -> bool {
    let mut good = true;
    let (whole, rest) = x.as_chunks();
    let (halves, tail) = out.split_at_mut(16 * whole.len());
    for (x, out) in whole.iter().zip(halves.as_chunks_mut().0) {
        let x = I::get(x);
        good &= I::finite(x);
        I::narrow(x, out);
    }
    for (x, out) in rest.iter().zip(tail.as_chunks_mut().0) {
        good &= x.abs() <= half::LARGEST; // false for NaN
        *out = half::narrow(*x).to_le_bytes();
    }
    good
}

/// Rows are of a multiple of 16, steps and minima of a multiple of 16 too.
#[inline(always)]
pub fn widen<I: Isa>(x: &[u8], mean: &[u8], out: &mut [f32]) {
    if I::PLAIN {
        for (x, out) in x.as_chunks().0.iter().zip(&mut *out) {
            *out = half::widen(u16::from_le_bytes(*x));
        }
        for (mean, out) in mean.as_chunks().0.iter().zip(out) {
            *out -= half::widen(u16::from_le_bytes(*mean));
        }
        return;
    }
    let rows = x.as_chunks().0.iter().zip(out.as_chunks_mut().0);
    if mean.is_empty() {
        for (x, out) in rows {
            I::put(I::widen(x), out);
        }
        return;
    }
    for ((x, out), mean) in rows.zip(mean.as_chunks().0) {
        I::put(I::sub(I::widen(x), I::widen(mean)), out);
    }
}

#[inline(always)]
pub fn mean<I: Isa>(rows: Fp16Rows<'_>, d: usize, mean: &mut [u8]) {
    for (i, mean) in mean[..2 * d].chunks_mut(64).enumerate() {
        match mean.len() {
            64 => mean_of::<I, 4>(rows, d, 32 * i, mean),
            _ => mean_of::<I, 2>(rows, d, 32 * i, mean),
        }
    }
}

/// Of `8 * N` channels from c on.
#[inline(always)]
fn mean_of<I: Isa, const N: usize>(rows: Fp16Rows<'_>, d: usize, c: usize, mean: &mut [u8]) {
    let mut sums = [I::all(0.0); N];
    for j in 0..rows.count {
        let x = &rows.row(j, d)[2 * c..2 * c + 16 * N];
        for i in 0..N {
            sums[i] = I::add(sums[i], load::<I>(&x[16 * i..]));
        }
    }
    let count = I::all(rows.count as f32);
    for (sum, mean) in sums.iter().zip(mean.as_chunks_mut().0) {
        I::narrow_finite(I::div(*sum, count), mean);
    }
}

#[inline(always)]
pub fn dots<I: Isa>(q: &[f32], d: usize, x: Fp16Rows<'_>, t: &mut [f32], t_stride: usize) {
    dots_apart::<I>((q, d, q.len() / d), d, x, t, t_stride);
}

#[inline(always)]
pub fn dot_each<I: Isa>(q: &[f32], stride: usize, x: &[u8], out: &mut [f32]) {
    let row = Fp16Rows { data: x, stride: 0, count: 1 };
    dots_apart::<I>((q, stride, out.len()), x.len() / 2, row, out, 1);
}

/// Rows of q: the first, how many numbers apart, how many.
#[inline(always)]
fn dots_apart<I: Isa>(q: (&[f32], usize, usize), d: usize, x: Fp16Rows<'_>, t: &mut [f32], t_stride: usize) {
    let (q, stride, rows) = q;
    if I::PLAIN {
        let mut wide = [0.0; MOST_ROW];
        for token in 0..x.count {
            widen::<I>(x.row(token, d), &[], &mut wide[..d]);
            for row in 0..rows {
                t[row * t_stride + token] = d16(&q[row * stride..][..d], &wide[..d]);
            }
        }
        return;
    }
    for from in (0..x.count).step_by(TOKENS) {
        let to = (from + TOKENS).min(x.count);
        ask_for::<I>(x, to, to + TOKENS, d);
        for row in (0..rows).step_by(ROWS) {
            let (q, x, t) = (&q[row * stride..], x.slice(from, to), &mut t[row * t_stride + from..]);
            for_rows!(rows - row, dots_rows::<I>(q, stride, d, x, t, t_stride));
        }
    }
}

/// Up to eight tokens.
#[inline(always)]
#[allow(unsafe_code)]
fn dots_rows<I: Isa, const R: usize>(
    q: &[f32],
    q_stride: usize,
    d: usize,
    x: Fp16Rows<'_>,
    t: &mut [f32],
    t_stride: usize,
) {
    let mut rows = [&[[0.0; 16]; 0][..]; R];
    for (r, row) in rows.iter_mut().enumerate() {
        *row = q[r * q_stride..r * q_stride + d].as_chunks().0;
    }
    let mut of_token = [[I::all(0.0); R]; TOKENS];
    for (token, halves) in of_token.iter_mut().enumerate().take(x.count) {
        let mut sums = [[I::all(0.0); 2]; R];
        for (n, x) in x.row(token, d).as_chunks::<32>().0.iter().enumerate() {
            let x = [load::<I>(x), load::<I>(&x[16..])];
            for (q, sums) in rows.iter().zip(&mut sums) {
                // SAFETY: q has d numbers, as x has, of which this is a part.
                let q = unsafe { q.get_unchecked(n) };
                sums[0] = add_product::<I>(sums[0], get::<I>(q), x[0]);
                sums[1] = add_product::<I>(sums[1], get::<I>(&q[8..]), x[1]);
            }
        }
        for (half, sums) in halves.iter_mut().zip(sums) {
            *half = I::add(sums[0], sums[1]);
        }
    }
    for r in 0..R {
        let (t, mut halves) = (&mut t[r * t_stride..], [I::all(0.0); TOKENS]);
        for (half, of_rows) in halves.iter_mut().zip(&of_token) {
            *half = of_rows[r];
        }
        if x.count == TOKENS {
            put::<I>(I::trees(halves), t);
            continue;
        }
        for (t, half) in t.iter_mut().zip(halves).take(x.count) {
            *t = I::tree(half);
        }
    }
}

/// Asks for rows from .. to, of d numbers, that are read soon: they lie apart, in the second-level cache at best.
#[inline(always)]
fn ask_for<I: Isa>(x: Fp16Rows<'_>, from: usize, to: usize, d: usize) {
    for token in from..to.min(x.count) {
        I::ask_for(x.row(token, d));
    }
}

/// Tokens in blocks, whose rows stay in the first-level cache while all channels are gone through.
#[inline(always)]
pub fn weighted<I: Isa>(p: &[f32], p_stride: usize, d: usize, x: Fp16Rows<'_>, acc: &mut [f32]) {
    if I::PLAIN {
        let mut wide = [0.0; MOST_CHANNELS];
        for token in 0..x.count {
            widen::<I>(x.row(token, d), &[], &mut wide[..d]);
            for (row, acc) in acc.chunks_exact_mut(d).enumerate() {
                let p = p[row * p_stride + token];
                acc.iter_mut().zip(&wide[..d]).for_each(|(acc, x)| *acc += p * x);
            }
        }
        return;
    }
    for from in (0..x.count).step_by(BLOCK) {
        let to = (from + BLOCK).min(x.count);
        ask_for::<I>(x, to, to + BLOCK, d);
        for (i, acc) in acc.chunks_mut(ROWS * d).enumerate() {
            let (p, x) = (&p[i * ROWS * p_stride + from..], x.slice(from, to));
            for_rows!(acc.len() / d, weighted_rows::<I>(p, p_stride, d, x, acc));
        }
    }
}

#[inline(always)]
#[allow(unsafe_code)]
fn weighted_rows<I: Isa, const R: usize>(p: &[f32], p_stride: usize, d: usize, x: Fp16Rows<'_>, acc: &mut [f32]) {
    let mut of_rows = [&p[..0]; R];
    for (r, row) in of_rows.iter_mut().enumerate() {
        *row = &p[r * p_stride..r * p_stride + x.count];
    }
    for c in (0..d).step_by(16) {
        let mut sums = [[I::all(0.0); 2]; R];
        for (r, sums) in sums.iter_mut().enumerate() {
            *sums = [get::<I>(&acc[r * d + c..]), get::<I>(&acc[r * d + c + 8..])];
        }
        for token in 0..x.count {
            let x = &x.data[token * x.stride + 2 * c..][..32];
            let x = [load::<I>(x), load::<I>(&x[16..])];
            for (p, sums) in of_rows.iter().zip(&mut sums) {
                // SAFETY: as many weights as tokens, by the cut above.
                let p = I::all(unsafe { *p.get_unchecked(token) });
                sums[0] = add_product::<I>(sums[0], p, x[0]);
                sums[1] = add_product::<I>(sums[1], p, x[1]);
            }
        }
        for (r, sums) in sums.into_iter().enumerate() {
            put::<I>(sums[0], &mut acc[r * d + c..]);
            put::<I>(sums[1], &mut acc[r * d + c + 8..]);
        }
    }
}
