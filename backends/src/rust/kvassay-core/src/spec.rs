//! What a layer stores and how: the spec, checked.

use std::mem::offset_of;

use crate::error::{Error, Kind, Result};

/// No centring.
pub const CENTRE_NONE: u8 = 0;
/// Centred by the mean of the layer's first page.
pub const CENTRE_FROZEN: u8 = 1;
/// Centred by the mean of the page; keys only.
pub const CENTRE_PAGE: u8 = 2;
/// Scales as bytes of the page's largest.
pub const SCALE_U8: u8 = 0;
/// Scales as bytes, logarithmic.
pub const SCALE_U8LOG: u8 = 1;
/// Scales as binary16.
pub const SCALE_FP16: u8 = 2;

/// How a stream is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Binary16.
    Fp16,
    /// Rotated, integer codebook.
    Turbo,
    /// Turbo and the signs of a projection of its error; keys only.
    TurboQjl,
    /// Steps and minima of groups of 32.
    Kivi,
}

impl Family {
    /// Stored in the transformed basis.
    pub fn rotated(self) -> bool {
        matches!(self, Self::Turbo | Self::TurboQjl)
    }
}

/// The struct, its fields' places and their checks, from one row a field: name, name in dumps, type, what must hold.
macro_rules! fields {
    ($($(#[$about:meta])* $name:ident $dumped:literal: $type:ty $(, $must:literal, $holds:expr)?;)*) => {
        /// One layer's spec, as numbered in `docs/page-format.md`, and in memory as `kv_layer_spec` has it.
        #[derive(Clone, Copy, Debug, PartialEq)]
        #[repr(C)]
        pub struct LayerSpec {
            $($(#[$about])* pub $name: $type,)*
        }

        impl LayerSpec {
            /// Name in dumps, offset and bytes of each field.
            pub const FIELDS: &'static [(&'static str, usize, usize)] =
                &[$(($dumped, offset_of!(Self, $name), size_of::<$type>())),*];

            /// `Kind::Spec` for what the numeric contract does not define.
            pub fn check(&self) -> Result<()> {
                $($(
                    let holds: fn(&Self) -> bool = $holds;
                    if !holds(self) {
                        let message = format!("{}: {} is not {}", stringify!($name), self.$name, $must);
                        return Err(Error::new(Kind::Spec, message));
                    }
                )?)*
                Ok(())
            }

            /// As in memory and in dumps, with zeros where there is no field.
            pub fn bytes(&self) -> [u8; size_of::<Self>()] {
                let mut out = [0; size_of::<Self>()];
                $(out[offset_of!(Self, $name)..][..size_of::<$type>()].copy_from_slice(&self.$name.to_le_bytes());)*
                out
            }
        }
    };
}

fields! {
    /// KV heads, at least 1.
    kv_heads "kv_heads": u16, "at least 1", |spec| spec.kv_heads >= 1;
    /// Query heads, a multiple of `kv_heads`.
    query_heads "query_heads": u16, "a multiple of kv_heads",
        |spec| spec.query_heads >= 1 && spec.query_heads.is_multiple_of(spec.kv_heads);
    /// A multiple of 16 in 16 ..= 576.
    head_dim "head_dim": u16, "a multiple of 16 in 16 .. 576", |spec| sixteens(spec.head_dim, 576);
    /// Tokens of a page: a multiple of 16 in 16 ..= 1024.
    page_tokens "page_tokens": u16, "a multiple of 16 in 16 .. 1024", |spec| sixteens(spec.page_tokens, 1024);
    /// `16 * family + 2 * bits`.
    key_mode "keys": u8, "a mode of docs/page-format.md", |spec| family_of(spec.key_mode).is_some();
    /// Likewise.
    value_mode "values": u8, "a mode of docs/page-format.md without sign projection",
        |spec| family_of(spec.value_mode).is_some_and(|family| family != Family::TurboQjl);
    /// `CENTRE_NONE`, `CENTRE_FROZEN` or `CENTRE_PAGE`.
    key_centre "key_centre": u8, "0, 1 or 2", |spec| spec.key_centre <= CENTRE_PAGE;
    /// `CENTRE_NONE` or `CENTRE_FROZEN`.
    value_centre "value_centre": u8, "0 or 1", |spec| spec.value_centre <= CENTRE_FROZEN;
    /// `SCALE_U8`, `SCALE_U8LOG` or `SCALE_FP16`.
    scale_kind "scale": u8, "0, 1 or 2", |spec| spec.scale_kind <= SCALE_FP16;
    /// Rounds of the transform: 1 or 2.
    rounds "rounds": u8, "1 or 2", |spec| (1..=2).contains(&spec.rounds);
    /// How many of the newest tokens stay fp16.
    window "window": u32;
    /// How many of the first tokens stay fp16.
    sinks "sinks": u32;
    /// How many of the newest tokens may be attended; 0: all.
    span "span": u32;
    /// In 2^-20 ..= 2^20.
    softmax_scale "softmax_scale": f32, "in 2^-20 .. 2^20",
        |spec| (2f32.powi(-20)..=2f32.powi(20)).contains(&spec.softmax_scale);
    /// Seed of the transforms.
    seed "seed": u64;
}

/// The two bytes of `LayerSpec` that are no field.
pub const RESERVED_AT: usize = 14;
const _: () = assert!(offset_of!(LayerSpec, rounds) + 1 == RESERVED_AT && offset_of!(LayerSpec, window) == 16);

fn sixteens(x: u16, most: u16) -> bool {
    (16..=most).contains(&x) && x.is_multiple_of(16)
}

impl LayerSpec {
    /// How keys are stored.
    pub fn keys(&self) -> Family {
        family_of(self.key_mode).expect("a checked spec")
    }

    /// How values are stored.
    pub fn values(&self) -> Family {
        family_of(self.value_mode).expect("a checked spec")
    }

    /// Centring of the keys: none where they are fp16.
    pub fn key_centring(&self) -> u8 {
        if self.keys() == Family::Fp16 { CENTRE_NONE } else { self.key_centre }
    }

    /// Centring of the values: none where they are fp16.
    pub fn value_centring(&self) -> u8 {
        if self.values() == Family::Fp16 { CENTRE_NONE } else { self.value_centre }
    }

    /// Whether keys and values are centred by a frozen mean.
    pub fn frozen(&self) -> [bool; 2] {
        [self.key_centring(), self.value_centring()].map(|centre| centre == CENTRE_FROZEN)
    }

    /// One of the streams has scales and a transform.
    pub fn rotated(&self) -> bool {
        self.keys().rotated() || self.values().rotated()
    }

    /// Pages sealed when `length` tokens have been appended.
    pub fn sealed(&self, length: u64) -> u64 {
        let kept = u64::from(self.sinks) + u64::from(self.window);
        length.saturating_sub(kept) / u64::from(self.page_tokens)
    }

    /// The first page that a query of this visible length can reach, with a span; it may not exist.
    pub fn first_reached(&self, visible: u64) -> u64 {
        if self.span == 0 {
            return 0;
        }
        let before = u64::from(self.span) + u64::from(self.sinks);
        visible.saturating_sub(before) / u64::from(self.page_tokens)
    }

    /// The first live page, `sealed(length)` if none is.
    pub fn first_live(&self, length: u64) -> u64 {
        self.first_reached(length).min(self.sealed(length))
    }

    /// Bytes of one token of all KV heads as fp16, keys or values.
    pub fn token_bytes(&self) -> usize {
        2 * usize::from(self.kv_heads) * usize::from(self.head_dim)
    }
}

/// The family of a mode that exists.
pub(crate) fn family_of(mode: u8) -> Option<Family> {
    match mode {
        0 => Some(Family::Fp16),
        0x14..=0x18 => Some(Family::Turbo),
        0x24..=0x28 => Some(Family::TurboQjl),
        0x34 | 0x36 | 0x38 => Some(Family::Kivi),
        _ => None,
    }
}
