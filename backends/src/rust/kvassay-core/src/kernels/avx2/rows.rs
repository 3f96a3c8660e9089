//! Rows of fp16.

use std::arch::x86_64::*;

use super::super::{Fp16Rows, body};
use super::{affine, registers};
use crate::half;

/// Rows that share what is widened.
const ROWS: usize = 4;
/// Tokens whose values are added at once.
const BLOCK: usize = 16;
/// Tokens whose products are summed at once.
const TOKENS: usize = 8;

/// Eight halves as floats.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn load(halves: &[u8]) -> __m256 {
    let halves: &[u8; 16] = halves.first_chunk().expect("eight halves");
    // SAFETY: sixteen bytes are read.
    _mm256_cvtph_ps(unsafe { _mm_loadu_si128(halves.as_ptr().cast()) })
}

#[inline]
#[target_feature(enable = "avx2")]
fn get(x: &[f32]) -> __m256 {
    registers::get(x.first_chunk().expect("eight floats"))
}

#[inline]
#[target_feature(enable = "avx2")]
fn put(out: &mut [f32], x: __m256) {
    registers::put(x, out.first_chunk_mut().expect("eight floats"));
}

#[target_feature(enable = "avx2,f16c")]
pub fn narrow(x: &[f32], out: &mut [u8]) -> bool {
    let (limit, sign) = (_mm256_set1_ps(half::LARGEST), _mm256_set1_ps(-0.0));
    let mut good = _mm256_castsi256_ps(_mm256_set1_epi8(-1));
    let (whole, rest) = x.as_chunks::<8>();
    let (halves, tail) = out.split_at_mut(16 * whole.len());
    for (x, out) in whole.iter().zip(halves.as_chunks_mut::<16>().0) {
        let x = get(x);
        good = _mm256_and_ps(good, _mm256_cmp_ps::<_CMP_LE_OQ>(_mm256_andnot_ps(sign, x), limit));
        let narrow = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x);
        // SAFETY: sixteen bytes are written.
        unsafe { _mm_storeu_si128(out.as_mut_ptr().cast(), narrow) };
    }
    body::narrow(rest, tail) && _mm256_movemask_ps(good) == 0xff
}

#[target_feature(enable = "avx2,f16c")]
pub fn widen(x: &[u8], mean: &[u8], out: &mut [f32]) {
    // Rows are of a multiple of 16, steps and minima of a multiple of 16 too.
    if mean.is_empty() {
        for (x, out) in x.as_chunks::<16>().0.iter().zip(out.as_chunks_mut::<8>().0) {
            put(out, load(x));
        }
        return;
    }
    for ((x, mean), out) in x.as_chunks::<16>().0.iter().zip(mean.as_chunks::<16>().0).zip(out.as_chunks_mut::<8>().0) {
        put(out, _mm256_sub_ps(load(x), load(mean)));
    }
}

#[target_feature(enable = "avx2,f16c")]
pub fn mean(rows: Fp16Rows<'_>, d: usize, mean: &mut [u8]) {
    for (i, mean) in mean[..2 * d].chunks_mut(64).enumerate() {
        match mean.len() {
            64 => mean_of::<4>(rows, d, 32 * i, mean),
            _ => mean_of::<2>(rows, d, 32 * i, mean),
        }
    }
}

/// Of `8 * N` channels from c on.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn mean_of<const N: usize>(rows: Fp16Rows<'_>, d: usize, c: usize, mean: &mut [u8]) {
    let mut sums = [_mm256_setzero_ps(); N];
    for j in 0..rows.count {
        let x = &rows.row(j, d)[2 * c..2 * c + 16 * N];
        for i in 0..N {
            sums[i] = _mm256_add_ps(sums[i], load(&x[16 * i..]));
        }
    }
    let count = _mm256_set1_ps(rows.count as f32);
    for (sum, mean) in sums.iter().zip(mean.as_chunks_mut().0) {
        registers::put_half(affine::narrow(_mm256_div_ps(*sum, count)), mean);
    }
}

#[target_feature(enable = "avx2,f16c")]
pub fn dots(q: &[f32], d: usize, x: Fp16Rows<'_>, t: &mut [f32], t_stride: usize) {
    for from in (0..x.count).step_by(TOKENS) {
        let to = (from + TOKENS).min(x.count);
        ask_for(x, to, to + TOKENS, d);
        for (i, q) in q.chunks(ROWS * d).enumerate() {
            let (x, t) = (x.slice(from, to), &mut t[i * ROWS * t_stride + from..]);
            match q.len() / d {
                1 => dots_rows::<1>(q, d, d, x, t, t_stride),
                2 => dots_rows::<2>(q, d, d, x, t, t_stride),
                3 => dots_rows::<3>(q, d, d, x, t, t_stride),
                _ => dots_rows::<4>(q, d, d, x, t, t_stride),
            }
        }
    }
}

#[target_feature(enable = "avx2,f16c")]
pub fn dot_each(q: &[f32], stride: usize, x: &[u8], out: &mut [f32]) {
    let (d, row) = (x.len() / 2, Fp16Rows { data: x, stride: 0, count: 1 });
    for (i, out) in out.chunks_mut(ROWS).enumerate() {
        let q = &q[i * ROWS * stride..];
        match out.len() {
            1 => dots_rows::<1>(q, stride, d, row, out, 1),
            2 => dots_rows::<2>(q, stride, d, row, out, 1),
            3 => dots_rows::<3>(q, stride, d, row, out, 1),
            _ => dots_rows::<4>(q, stride, d, row, out, 1),
        }
    }
}

/// Up to eight tokens.
#[target_feature(enable = "avx2,f16c")]
fn dots_rows<const R: usize>(q: &[f32], q_stride: usize, d: usize, x: Fp16Rows<'_>, t: &mut [f32], t_stride: usize) {
    let mut rows = [&q[..0]; R];
    for (r, row) in rows.iter_mut().enumerate() {
        *row = &q[r * q_stride..r * q_stride + d];
    }
    assert!(x.count <= TOKENS);
    let mut of_token = [[_mm256_setzero_ps(); R]; TOKENS];
    for (token, halves) in of_token.iter_mut().enumerate().take(x.count) {
        let x = x.row(token, d);
        let mut sums = [[_mm256_setzero_ps(); 2]; R];
        for (n, x) in x.as_chunks::<32>().0.iter().enumerate() {
            let x = [load(x), load(&x[16..])];
            for (q, sums) in rows.iter().zip(&mut sums) {
                // SAFETY: q has d numbers, as x has, of which this is a part.
                let q = unsafe { q.get_unchecked(16 * n..16 * n + 16) };
                sums[0] = _mm256_add_ps(sums[0], _mm256_mul_ps(get(q), x[0]));
                sums[1] = _mm256_add_ps(sums[1], _mm256_mul_ps(get(&q[8..]), x[1]));
            }
        }
        for (half, sums) in halves.iter_mut().zip(sums) {
            *half = _mm256_add_ps(sums[0], sums[1]);
        }
    }
    for r in 0..R {
        let t = &mut t[r * t_stride..];
        let mut halves = [_mm256_setzero_ps(); TOKENS];
        for (half, of_token) in halves.iter_mut().zip(&of_token) {
            *half = of_token[r];
        }
        if x.count == TOKENS {
            put(t, trees(halves));
            continue;
        }
        for (t, half) in t.iter_mut().zip(halves).take(x.count) {
            *t = tree(half);
        }
    }
}

/// What is left of sixteen sums by halves after the first.
#[inline]
#[target_feature(enable = "avx2")]
fn tree(eight: __m256) -> f32 {
    let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
}

/// The same of eight tokens at once.
#[inline]
#[target_feature(enable = "avx2")]
fn trees(s: [__m256; TOKENS]) -> __m256 {
    let (mut four, mut two) = ([_mm256_setzero_ps(); 4], [_mm256_setzero_ps(); 2]);
    for i in 0..4 {
        let (a, b) = (s[2 * i], s[2 * i + 1]);
        four[i] = _mm256_add_ps(_mm256_permute2f128_ps::<0x20>(a, b), _mm256_permute2f128_ps::<0x31>(a, b));
    }
    for i in 0..2 {
        let (a, b) = (four[2 * i], four[2 * i + 1]);
        two[i] = _mm256_add_ps(_mm256_shuffle_ps::<0x44>(a, b), _mm256_shuffle_ps::<0xee>(a, b));
    }
    let [a, b] = two;
    // Tokens 0, 2, 4, 6, then 1, 3, 5, 7.
    let one = _mm256_add_ps(_mm256_shuffle_ps::<0x88>(a, b), _mm256_shuffle_ps::<0xdd>(a, b));
    _mm256_permutevar8x32_ps(one, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7))
}

/// Asks for rows from .. to, of d numbers, that are read soon: they lie apart, in the second-level cache at best.
#[inline]
#[target_feature(enable = "avx2")]
fn ask_for(x: Fp16Rows<'_>, from: usize, to: usize, d: usize) {
    for token in from..to.min(x.count) {
        for line in x.row(token, d).chunks(64) {
            _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast());
        }
    }
}

/// Tokens in blocks, whose rows stay in the first-level cache while all channels are gone through.
#[target_feature(enable = "avx2,f16c")]
pub fn weighted(p: &[f32], p_stride: usize, d: usize, x: Fp16Rows<'_>, acc: &mut [f32]) {
    for from in (0..x.count).step_by(BLOCK) {
        let to = (from + BLOCK).min(x.count);
        ask_for(x, to, to + BLOCK, d);
        weighted_block(&p[from..], p_stride, d, x.slice(from, to), acc);
    }
}

#[target_feature(enable = "avx2,f16c")]
fn weighted_block(p: &[f32], p_stride: usize, d: usize, x: Fp16Rows<'_>, acc: &mut [f32]) {
    for (i, acc) in acc.chunks_mut(ROWS * d).enumerate() {
        let p = &p[i * ROWS * p_stride..];
        match acc.len() / d {
            1 => weighted_rows::<1>(p, p_stride, d, x, acc),
            2 => weighted_rows::<2>(p, p_stride, d, x, acc),
            3 => weighted_rows::<3>(p, p_stride, d, x, acc),
            _ => weighted_rows::<4>(p, p_stride, d, x, acc),
        }
    }
}

#[target_feature(enable = "avx2,f16c")]
fn weighted_rows<const R: usize>(p: &[f32], p_stride: usize, d: usize, x: Fp16Rows<'_>, acc: &mut [f32]) {
    let mut of_rows = [&p[..0]; R];
    for (r, row) in of_rows.iter_mut().enumerate() {
        *row = &p[r * p_stride..r * p_stride + x.count];
    }
    for c in (0..d).step_by(16) {
        let mut sums = [[_mm256_setzero_ps(); 2]; R];
        for (r, sums) in sums.iter_mut().enumerate() {
            *sums = [get(&acc[r * d + c..]), get(&acc[r * d + c + 8..])];
        }
        for token in 0..x.count {
            let x = &x.data[token * x.stride + 2 * c..][..32];
            let x = [load(x), load(&x[16..])];
            for (p, sums) in of_rows.iter().zip(&mut sums) {
                // SAFETY: as many weights as tokens, by the cut above.
                let p = _mm256_set1_ps(unsafe { *p.get_unchecked(token) });
                sums[0] = _mm256_add_ps(sums[0], _mm256_mul_ps(p, x[0]));
                sums[1] = _mm256_add_ps(sums[1], _mm256_mul_ps(p, x[1]));
            }
        }
        for r in 0..R {
            put(&mut acc[r * d + c..], sums[r][0]);
            put(&mut acc[r * d + c + 8..], sums[r][1]);
        }
    }
}
