//! Everything that touches many numbers: one implementation of `Kernels` a variant (instruction set).
//!
//! Each gives the bits of the numeric contract. A kernel owns no state and knows nothing of pages, masks or
//! chunks. Rows of several query heads of one KV head go together, so that what is decoded is shared.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod body;
pub mod control;
mod scalar;
#[cfg(test)]
mod tests;
mod tiles;

use std::ffi::CStr;

use crate::arith::d16;
use crate::codec::{Codec, Span};
use crate::error::{Error, Kind, Result};
use crate::half;
use crate::transform::{MOST_CHANNELS, Transform};

pub use scalar::Scalar;

/// The kernels of one variant. `d` is a multiple of 16; rows lie one after the other unless a stride is named.
pub trait Kernels: Sync {
    /// To fp16, n numbers; false if one was NaN or beyond 65504, and what was written is then of no use.
    fn narrow(&self, x: &[f32], out: &mut [u8]) -> bool;
    /// `f32(x) - f32(mean)`, one row; mean empty: none.
    fn widen(&self, x: &[u8], mean: &[u8], out: &mut [f32]);
    /// The mean of the rows, as fp16.
    fn mean(&self, rows: Fp16Rows<'_>, d: usize, mean: &mut [u8]) {
        let (mut sum, mut row) = ([0.0; MOST_CHANNELS], [0.0; MOST_CHANNELS]);
        let (sum, row) = (&mut sum[..d], &mut row[..d]);
        for j in 0..rows.count {
            self.widen(rows.row(j, d), &[], row);
            for (sum, x) in sum.iter_mut().zip(&*row) {
                *sum += x;
            }
        }
        for (c, sum) in sum.iter().enumerate() {
            half::put(mean, c, half::narrow(sum / rows.count as f32));
        }
    }
    /// `T`, in place, rows of `t.d`.
    fn forward(&self, t: &Transform, x: &mut [f32]);
    /// `T'`, likewise.
    fn inverse(&self, t: &Transform, x: &mut [f32]);

    /// Turbo: transformed rows y `[tokens][d]` to codes `[tokens][d]` and scales without the gain.
    fn quantize(&self, codec: &Codec, unbiased: bool, y: &[f32], codes: &mut [u8], scales: &mut [f32]);
    /// One token: `y = y - scale * centroid`; the result is `D16` of that with itself.
    fn residual(&self, codec: &Codec, y: &mut [f32], codes: &[u8], scale: f32) -> f32;
    /// KIVI keys, one group of tokens r `[tokens][d]`: codes, and steps and minima `[d]` as fp16.
    fn affine_keys(&self, bits: usize, r: &[f32], d: usize, codes: &mut [u8], steps: &mut [u8], minima: &mut [u8]);
    /// KIVI values, one token's group of channels: codes; the result is step and minimum.
    fn affine_values(&self, bits: usize, r: &[f32], codes: &mut [u8]) -> (u16, u16);
    /// Codes `[tokens][d]` to the key tiles of one head.
    fn pack_keys(&self, codec: &Codec, d: usize, codes: &[u8], tiles: &mut [u8]);
    /// Codes `[tokens][d]` to the value tiles of one head.
    fn pack_values(&self, codec: &Codec, d: usize, codes: &[u8], tiles: &mut [u8]);

    /// Turbo in one: a head's rows of a page, less their mean, to tiles, and to scales without the gain. What it leaves
    /// in y and codes is known to `signs` of the same variant alone.
    fn encode(&self, turbo: &Turbo<'_>, rows: Fp16Rows<'_>, mean: &[u8], work: &mut Workspace<'_>, tiles: &mut [u8]) {
        let d = turbo.transform.d;
        for (j, y) in work.y.chunks_exact_mut(d).enumerate() {
            self.widen(rows.row(j, d), mean, y);
        }
        self.forward(turbo.transform, work.y);
        self.quantize(turbo.codec, turbo.role == Role::Keys, work.y, work.codes, work.scales);
        match turbo.role {
            Role::Values => self.pack_values(turbo.codec, d, work.codes, tiles),
            Role::Keys | Role::SignedKeys => self.pack_keys(turbo.codec, d, work.codes, tiles),
        }
    }
    /// After `encode` of signed keys, with `scales` as they are read back: `D16` of what the codes leave with itself to
    /// `norms`, and the signs of its projection by t to tiles.
    fn signs(&self, key: &Codec, t: &Transform, work: &mut Workspace<'_>, tiles: &mut [u8]) {
        let tokens = work.y.chunks_exact_mut(t.d).zip(work.codes.chunks_exact(t.d));
        for ((scale, norm), (y, codes)) in work.scales.iter().zip(&mut *work.norms).zip(tokens) {
            *norm = self.residual(key, y, codes, *scale);
        }
        self.forward(t, work.y);
        for (y, code) in work.y.iter().zip(&mut *work.codes) {
            *code = u8::from(*y >= 0.0);
        }
        self.pack_keys(&Codec::signs(t.d), t.d, work.codes, tiles);
    }

    /// The integer query of z with bound 127; the result is its scale.
    fn query8(&self, z: &[f32], qi: &mut [i8]) -> f32;
    /// What `keyscan` wants to know of an integer query beyond itself, d / 8 numbers.
    fn prepare(&self, _codec: &Codec, _qi: &[i8], _prepared: &mut [i32]) {}
    /// How many numbers `arrange` writes for each `TOGETHER` rows.
    fn arranged(&self, _d: usize) -> usize {
        0
    }
    /// All integer queries of a job, `[rows][d]`, as `keyscan` reads them, once for all pages.
    fn arrange(&self, _codec: &Codec, _d: usize, _qi: &[i8], _arranged: &mut [i32]) {}
    /// The integer query of `q * step` with bound 16256, in the order that `keyscan15` reads; the result is its scale.
    fn query15(&self, q: &[f32], step: &[f32], qi: &mut [i16]) -> f32;

    /// `out[row][token]` = sum over channels of q `[row][channel]` times what the code stands for.
    fn keyscan(&self, codec: &Codec, d: usize, tiles: &[u8], tokens: usize, q: Queries<'_>, out: &mut [i32]);
    /// The same with a query of 15 bits.
    fn keyscan15(&self, codec: &Codec, d: usize, tiles: &[u8], tokens: usize, q: &[i16], out: &mut [i32]);
    /// One span: `out[row][channel]` = sum over tokens of w `[row][token]`, 0 ..= 16383, times what the code stands
    /// for.
    fn valuesum(&self, span: &Span, tiles: &[u8], tokens: usize, w: &[i16], out: &mut [i32]);

    /// The largest of at least one.
    fn maximum(&self, t: &[f32]) -> f32;
    /// `t = ex2(t - maximum)`, added to stripe `(phase + i) mod 16`.
    fn exponentials(&self, t: &mut [f32], maximum: f32, stripes: &mut [f32; 16], phase: usize);

    /// `t[row * t_stride + token] = D16(q[row], x[token])`; rows of fp16 `stride` bytes apart.
    fn dots(&self, q: &[f32], d: usize, x: Fp16Rows<'_>, t: &mut [f32], t_stride: usize);
    /// `out[row] = D16(q[row * stride], x)`, one row x of fp16.
    fn dot_each(&self, q: &[f32], stride: usize, x: &[u8], out: &mut [f32]) {
        let n = x.len() / 2;
        let mut wide = [0.0; body::MOST_ROW];
        self.widen(x, &[], &mut wide[..n]);
        for (row, out) in out.iter_mut().enumerate() {
            *out = d16(&q[row * stride..][..n], &wide[..n]);
        }
    }
    /// `acc[row][c] += p[row * p_stride + token] * x[token][c]` in token order.
    fn weighted(&self, p: &[f32], p_stride: usize, d: usize, x: Fp16Rows<'_>, acc: &mut [f32]);

    /// `t = (f32(sum) * su) * factor`.
    fn logits(&self, sum: &[i32], su: &[f32], factor: f32, t: &mut [f32]);
    /// `t = t + (f32(sum) * su) * factor`.
    fn add_logits(&self, sum: &[i32], su: &[f32], factor: f32, t: &mut [f32]);
    /// `t = f32(sum) * scale + bias`.
    fn affine_logits(&self, sum: &[i32], scale: f32, bias: f32, t: &mut [f32]);
    /// `t = t + bias`.
    fn shift(&self, t: &mut [f32], bias: f32);
    /// Weights `p * scale` as 14 bits in the order that `valuesum` reads; the result is the largest. Zeros where that is
    /// below 2^-60.
    fn weigh(&self, p: &[f32], scale: &[f32], iw: &mut [i16]) -> f32;
    /// `acc = acc * al + f32(sum) * f`.
    fn blend(&self, acc: &mut [f32], sum: &[i32], al: f32, f: f32);
    /// `acc = acc * al + (f32(sum) * scale + offset) * be`.
    fn blend_affine(&self, acc: &mut [f32], sum: &[i32], al: f32, scale: f32, offset: f32, be: f32);
    /// `acc = acc * al + x * be`.
    fn blend_rows(&self, acc: &mut [f32], x: &[f32], al: f32, be: f32);
    /// Asks for bytes that are read soon.
    fn prefetch(&self, _bytes: &[u8]) {}
    /// CRC-32 as in zlib.
    fn crc32(&self, crc: u32, data: &[u8]) -> u32 {
        crate::crc::crc32(crc, data)
    }
}

/// How a stream of turbo codes is made.
#[derive(Clone, Copy)]
pub struct Turbo<'a> {
    /// Its codes.
    pub codec: &'a Codec,
    /// Its transform.
    pub transform: &'a Transform,
    /// What the codes are of.
    pub role: Role,
}

/// What turbo codes are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Keys alone: scales are unbiased.
    Keys,
    /// Keys of which `signs` will be made: scales have least squares, as those of values.
    SignedKeys,
    /// Values.
    Values,
}

/// Working memory of a page's encoding.
pub struct Workspace<'a> {
    /// `[page_tokens][d]`.
    pub y: &'a mut [f32],
    /// `[page_tokens]`.
    pub scales: &'a mut [f32],
    /// `[page_tokens]`.
    pub norms: &'a mut [f32],
    /// `[page_tokens][d]`.
    pub codes: &'a mut [u8],
}

/// Rows that `arrange` puts together.
pub const TOGETHER: usize = 4;

/// Integer queries of 7 bits, and what `prepare` made of each.
#[derive(Clone, Copy)]
pub struct Queries<'a> {
    /// `[rows][d]`.
    pub qi: &'a [i8],
    /// `[rows][d / 8]`.
    pub prepared: &'a [i32],
    /// What `arrange` made of them, from the first on; empty where that is not the first of `TOGETHER`.
    pub arranged: &'a [i32],
}

/// Rows of fp16 of one head, `stride` bytes apart.
#[derive(Clone, Copy)]
pub struct Fp16Rows<'a> {
    /// The first row starts here.
    pub data: &'a [u8],
    /// Bytes from row to row.
    pub stride: usize,
    /// Number of rows.
    pub count: usize,
}

impl<'a> Fp16Rows<'a> {
    /// Row i of d numbers.
    #[inline(always)]
    pub fn row(&self, i: usize, d: usize) -> &'a [u8] {
        &self.data[i * self.stride..][..2 * d]
    }

    /// Rows from ..to.
    pub fn slice(&self, from: usize, to: usize) -> Self {
        // Of no rows there need not be a place where they start.
        let data = if from == to { &[] } else { &self.data[from * self.stride..] };
        Self { data, stride: self.stride, count: to - from }
    }
}

/// A variant, from the most portable to the fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Variant {
    /// Plain Rust.
    Scalar,
    /// AVX2, F16C and PCLMULQDQ.
    #[cfg(target_arch = "x86_64")]
    Avx2,
}

impl Variant {
    /// All that were built for this machine.
    pub const ALL: &'static [Variant] = &[
        Variant::Scalar,
        #[cfg(target_arch = "x86_64")]
        Variant::Avx2,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        self.c_name().to_str().expect("a name in ASCII")
    }

    /// Its name for C.
    pub const fn c_name(self) -> &'static CStr {
        match self {
            Self::Scalar => c"scalar",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => c"avx2",
        }
    }

    /// Its kernels; `Kind::Variant` where this CPU cannot run them.
    pub fn kernels(self) -> Result<&'static dyn Kernels> {
        match self {
            Self::Scalar => Ok(&Scalar),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => match avx2::Avx2::find() {
                Some(found) => Ok(found),
                None => Err(Error::new(Kind::Variant, "this CPU has no AVX2, F16C or PCLMULQDQ")),
            },
        }
    }

    /// The variant of a name, or the best that runs.
    pub fn find(name: Option<&str>) -> Result<Variant> {
        let Some(name) = name else {
            return Ok(Self::ALL.iter().rev().copied().find(|v| v.kernels().is_ok()).unwrap_or(Self::Scalar));
        };
        let names: Vec<_> = Self::ALL.iter().map(|v| v.name()).collect();
        let found = Self::ALL.iter().copied().find(|v| v.name() == name);
        found.ok_or_else(|| Error::new(Kind::Variant, format!("variant: no {name:?}; there are: {}", names.join(", "))))
    }
}
