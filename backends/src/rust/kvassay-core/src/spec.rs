//! What a layer stores and how: the spec, checked.

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

/// One layer's spec, as numbered in `docs/page-format.md`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerSpec {
    /// KV heads, at least 1.
    pub kv_heads: u16,
    /// Query heads, a multiple of `kv_heads`.
    pub query_heads: u16,
    /// A multiple of 16 in 16 ..= 576.
    pub head_dim: u16,
    /// Tokens of a page: a multiple of 16 in 16 ..= 1024.
    pub page_tokens: u16,
    /// `16 * family + 2 * bits`.
    pub key_mode: u8,
    /// Likewise.
    pub value_mode: u8,
    /// `CENTRE_NONE`, `CENTRE_FROZEN` or `CENTRE_PAGE`.
    pub key_centre: u8,
    /// `CENTRE_NONE` or `CENTRE_FROZEN`.
    pub value_centre: u8,
    /// `SCALE_U8`, `SCALE_U8LOG` or `SCALE_FP16`.
    pub scale_kind: u8,
    /// Rounds of the transform: 1 or 2.
    pub rounds: u8,
    /// How many of the newest tokens stay fp16.
    pub window: u32,
    /// How many of the first tokens stay fp16.
    pub sinks: u32,
    /// How many of the newest tokens may be attended; 0: all.
    pub span: u32,
    /// In 2^-20 ..= 2^20.
    pub softmax_scale: f32,
    /// Seed of the transforms.
    pub seed: u64,
}

impl LayerSpec {
    /// `Kind::Spec` for what the numeric contract does not define.
    pub fn check(&self) -> Result<()> {
        let d = self.head_dim;
        let p = self.page_tokens;
        require(self.kv_heads >= 1, "kv_heads", self.kv_heads, "at least 1")?;
        let whole = self.query_heads >= 1 && self.query_heads.is_multiple_of(self.kv_heads);
        require(whole, "query_heads", self.query_heads, "a multiple of kv_heads")?;
        require((16..=576).contains(&d) && d.is_multiple_of(16), "head_dim", d, "a multiple of 16 in 16 .. 576")?;
        require((16..=1024).contains(&p) && p.is_multiple_of(16), "page_tokens", p, "a multiple of 16 in 16 .. 1024")?;
        require(family_of(self.key_mode).is_some(), "key_mode", self.key_mode, "a mode of docs/page-format.md")?;
        let values = family_of(self.value_mode).is_some_and(|family| family != Family::TurboQjl);
        require(values, "value_mode", self.value_mode, "a mode of docs/page-format.md without sign projection")?;
        require(self.key_centre <= CENTRE_PAGE, "key_centre", self.key_centre, "0, 1 or 2")?;
        require(self.value_centre <= CENTRE_FROZEN, "value_centre", self.value_centre, "0 or 1")?;
        require(self.scale_kind <= SCALE_FP16, "scale_kind", self.scale_kind, "0, 1 or 2")?;
        require((1..=2).contains(&self.rounds), "rounds", self.rounds, "1 or 2")?;
        let scale = self.softmax_scale;
        let range = 2f32.powi(-20)..=2f32.powi(20);
        require(range.contains(&scale), "softmax_scale", scale, "in 2^-20 .. 2^20")
    }

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

fn require(ok: bool, field: &str, value: impl std::fmt::Display, must: &str) -> Result<()> {
    if ok { Ok(()) } else { Err(Error::new(Kind::Spec, format!("{field}: {value} is not {must}"))) }
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
