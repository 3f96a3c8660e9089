//! The kernels' signatures, once: `each_kernel!(macro given)` is the macro with what is given and all of them.

/// `d` is a multiple of 16; rows lie one after the other unless a stride is named.
macro_rules! each_kernel {
    ($with:ident $($given:tt)*) => { $with! { [$($given)*]
        /// To fp16, n numbers; false if one was NaN or beyond 65504, and what was written is then of no use.
        fn narrow(x: &[f32], out: &mut [u8]) -> bool;
        /// `f32(x) - f32(mean)`, one row; mean empty: none.
        fn widen(x: &[u8], mean: &[u8], out: &mut [f32]);
        /// The mean of the rows, as fp16.
        fn mean(rows: Fp16Rows<'_>, d: usize, mean: &mut [u8]);
        /// `T`, in place, rows of `t.d`.
        fn forward(t: &Transform, x: &mut [f32]);
        /// `T'`, likewise.
        fn inverse(t: &Transform, x: &mut [f32]);

        /// Turbo: a head's rows of a page, less their mean, to tiles, and to scales without the gain. What it leaves in
        /// y and codes is known to `signs` of the same variant alone.
        fn encode(turbo: &Turbo<'_>, rows: Fp16Rows<'_>, mean: &[u8], work: &mut Workspace<'_>, tiles: &mut [u8]);
        /// After `encode` of signed keys, with `scales` as they are read back: `D16` of what the codes leave with itself
        /// to `norms`, and the signs of its projection by t to tiles.
        fn signs(key: &Codec, t: &Transform, work: &mut Workspace<'_>, tiles: &mut [u8]);
        /// KIVI keys, one group of tokens r `[tokens][d]`: codes, and steps and minima `[d]` as fp16.
        fn affine_keys(bits: usize, r: &[f32], d: usize, codes: &mut [u8], steps: &mut [u8], minima: &mut [u8]);
        /// KIVI values, one token's group of channels: codes; the result is step and minimum.
        fn affine_values(bits: usize, r: &[f32], codes: &mut [u8]) -> (u16, u16);
        /// Codes `[tokens][d]` to the key tiles of one head.
        fn pack_keys(codec: &Codec, d: usize, codes: &[u8], tiles: &mut [u8]);
        /// Codes `[tokens][d]` to the value tiles of one head.
        fn pack_values(codec: &Codec, d: usize, codes: &[u8], tiles: &mut [u8]);

        /// The integer query of z with bound 127; the result is its scale.
        fn query8(z: &[f32], qi: &mut [i8]) -> f32;
        /// What `keyscan` wants to know of an integer query beyond itself, d / 8 numbers.
        fn prepare(codec: &Codec, qi: &[i8], prepared: &mut [i32]);
        /// How many numbers `arrange` writes for each `TOGETHER` rows.
        fn arranged(d: usize) -> usize;
        /// All integer queries of a job, `[rows][d]`, as `keyscan` reads them, once for all pages.
        fn arrange(codec: &Codec, d: usize, qi: &[i8], arranged: &mut [i32]);
        /// The integer query of `q * step` with bound 16256, in the order that `keyscan15` reads; the result is its scale.
        fn query15(q: &[f32], step: &[f32], qi: &mut [i16]) -> f32;

        /// `out[row][token]` = sum over channels of q `[row][channel]` times what the code stands for.
        fn keyscan(codec: &Codec, d: usize, tiles: &[u8], tokens: usize, q: Queries<'_>, out: &mut [i32]);
        /// The same with a query of 15 bits.
        fn keyscan15(codec: &Codec, d: usize, tiles: &[u8], tokens: usize, q: &[i16], out: &mut [i32]);
        /// One span: `out[row][channel]` = sum over tokens of w `[row][token]`, 0 ..= 16383, times what the code stands
        /// for.
        fn valuesum(span: &Span, tiles: &[u8], tokens: usize, w: &[i16], out: &mut [i32]);

        /// The largest of at least one. Of zeros of both signs either may be returned: nothing that uses it can tell.
        fn maximum(t: &[f32]) -> f32;
        /// `t = ex2(t - maximum)`, added to stripe `(phase + i) mod 16`.
        fn exponentials(t: &mut [f32], maximum: f32, stripes: &mut [f32; 16], phase: usize);

        /// `t[row * t_stride + token] = D16(q[row], x[token])`; rows of fp16 `stride` bytes apart.
        fn dots(q: &[f32], d: usize, x: Fp16Rows<'_>, t: &mut [f32], t_stride: usize);
        /// `out[row] = D16(q[row * stride], x)`, one row x of fp16.
        fn dot_each(q: &[f32], stride: usize, x: &[u8], out: &mut [f32]);
        /// `acc[row][c] += p[row * p_stride + token] * x[token][c]` in token order.
        fn weighted(p: &[f32], p_stride: usize, d: usize, x: Fp16Rows<'_>, acc: &mut [f32]);

        /// `t = (f32(sum) * su) * factor`.
        fn logits(sum: &[i32], su: &[f32], factor: f32, t: &mut [f32]);
        /// `t = t + (f32(sum) * su) * factor`.
        fn add_logits(sum: &[i32], su: &[f32], factor: f32, t: &mut [f32]);
        /// `t = f32(sum) * scale + bias`.
        fn affine_logits(sum: &[i32], scale: f32, bias: f32, t: &mut [f32]);
        /// `t = t + bias`.
        fn shift(t: &mut [f32], bias: f32);
        /// Weights `p * scale` as 14 bits in the order that `valuesum` reads; the result is the largest. Zeros where that
        /// is below 2^-60.
        fn weigh(p: &[f32], scale: &[f32], iw: &mut [i16]) -> f32;
        /// `acc = acc * al + f32(sum) * f`.
        fn blend(acc: &mut [f32], sum: &[i32], al: f32, f: f32);
        /// `acc = acc * al + (f32(sum) * scale + offset) * be`.
        fn blend_affine(acc: &mut [f32], sum: &[i32], al: f32, scale: f32, offset: f32, be: f32);
        /// `acc = acc * al + x * be`.
        fn blend_rows(acc: &mut [f32], x: &[f32], al: f32, be: f32);
        /// Asks for bytes that are read soon.
        fn prefetch(bytes: &[u8]);
        /// CRC-32 as in zlib.
        fn crc32(crc: u32, data: &[u8]) -> u32;
    } };
}

/// The table of kernels.
macro_rules! define {
    ([] $($(#[$about:meta])* fn $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        /// The kernels of one variant, which there are only of one that runs: a table that is made with
        /// `..`of what is not written anew.
        #[derive(Clone, Copy)]
        pub struct Kernels {
            $($name: unsafe fn($($type),*) $(-> $result)?,)*
        }

        #[allow(unsafe_code)]
        impl Kernels {
            $($(#[$about])*
            #[inline(always)]
            pub fn $name(&self, $($arg: $type),*) $(-> $result)? {
                // SAFETY: the table is of a variant that `Variant::kernels` found to run.
                unsafe { (self.$name)($($arg),*) }
            })*
        }
    };
}

/// The table of `body` over an instruction set, with an attribute that names what the compiler may use.
macro_rules! compiled {
    ([$isa:ty, $attribute:tt] $($(#[$about:meta])* fn $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?;)*) => {{
        $(#$attribute
        fn $name($($arg: $type),*) $(-> $result)? {
            crate::kernels::body::$name::<$isa>($($arg),*)
        })*
        Kernels { $($name),* }
    }};
}

/// `f` with the number of rows as a constant, after other constants.
macro_rules! for_rows {
    ($rows:expr, $f:ident$(::<$($const:ident),*>)?($($arg:expr),*)) => {
        match $rows {
            1 => $f::<$($($const,)*)? 1>($($arg),*),
            2 => $f::<$($($const,)*)? 2>($($arg),*),
            3 => $f::<$($($const,)*)? 3>($($arg),*),
            _ => $f::<$($($const,)*)? 4>($($arg),*),
        }
    };
}

pub(crate) use {compiled, define, each_kernel, for_rows};
