//! Tables made from a spec: plain data, read-only once made.

use crate::codec::Codec;
use crate::error::{Error, Kind, Result};
use crate::family;
use crate::kernels::{Kernels, Variant};
use crate::layout::{Layout, PARTS, Part, Parts};
use crate::spec::{CENTRE_PAGE, LayerSpec};
use crate::transform::{Stream, Transform};

/// Pages that are worked on as one (numeric contract, section 10).
pub const CHUNK_PAGES: u64 = 16;
/// Tokens or channels of a group of KIVI.
pub const GROUP: usize = 32;

const LOG2E: f64 = f64::from_bits(0x3FF7_1547_652B_82FE);
const HALF_PI: f64 = std::f64::consts::FRAC_PI_2;
/// `const(ln2)`.
pub const LN2: f32 = f64::from_bits(0x3FE6_2E42_FEFA_39EF) as f32;

/// Everything that a spec determines.
#[derive(Clone, Copy)]
pub struct Plan {
    /// The spec as given.
    pub spec: LayerSpec,
    /// Codes of the keys.
    pub key: Codec,
    /// Codes of the values.
    pub value: Codec,
    /// Codes of the sign projection.
    pub signs: Codec,
    /// Where the streams of a page lie.
    pub layout: Layout,
    /// Gain of the stored scale.
    pub store: f32,
    /// What undoes it: `2^ceil(E/2)`.
    pub unstore: f32,
    /// Gain of what is read.
    pub read: f32,
    /// `K` of section 7.
    pub sign_gain: f32,
    /// `const(log2e * softmax_scale)`.
    pub query_scale: f32,
    transforms: [Transform; 3],
    variant: Variant,
}

impl Plan {
    /// The plan of a spec, for a variant that runs.
    pub fn new(spec: &LayerSpec, variant: Variant) -> Result<Self> {
        spec.check()?;
        variant.kernels()?;
        let d = usize::from(spec.head_dim);
        let key = Codec::new(spec.keys(), spec.key_mode, d);
        let value = Codec::new(spec.values(), spec.value_mode, d);
        let mut bytes = [0; PARTS.len()];
        family::of(spec.keys()).streams(spec, &key, &Parts::of(Stream::Keys), &mut bytes);
        family::of(spec.values()).streams(spec, &value, &Parts::of(Stream::Values), &mut bytes);
        bytes[Part::KeyMean as usize] = if spec.key_centring() == CENTRE_PAGE { 2 * d } else { 0 };
        let layout = Layout::new(spec.kv_heads, bytes)
            .ok_or_else(|| Error::new(Kind::Spec, "kv_heads: a page of that many heads is beyond 4 GiB"))?;
        let gain = i32::from(spec.rounds) * d.trailing_zeros() as i32;
        let odd = gain % 2;
        let (up, down) = ((gain + 1) / 2, gain / 2);
        let x = HALF_PI / d as f64 * if odd == 1 { 2.0 } else { 1.0 };
        let y = up - (3 * gain + odd) / 2;
        let transform = |stream| Transform::new(spec.seed, stream, d, spec.rounds);
        Ok(Self {
            spec: *spec,
            key,
            value,
            signs: Codec::signs(d),
            layout,
            store: 2f32.powi(-up),
            unstore: 2f32.powi(up),
            read: 2f32.powi(-down),
            sign_gain: (x.sqrt() * 2f64.powi(y)) as f32,
            query_scale: (LOG2E * f64::from(spec.softmax_scale)) as f32,
            transforms: [Stream::Keys, Stream::Values, Stream::Signs].map(transform),
            variant,
        })
    }

    /// The transform of a stream.
    pub fn transform(&self, stream: Stream) -> &Transform {
        &self.transforms[stream as usize]
    }

    /// The codes of a stream.
    pub fn codec(&self, stream: Stream) -> &Codec {
        match stream {
            Stream::Keys => &self.key,
            Stream::Values => &self.value,
            Stream::Signs => &self.signs,
        }
    }

    /// The variant it was made for.
    pub fn variant(&self) -> Variant {
        self.variant
    }

    /// The kernels of that variant, which `new` found to run.
    pub fn kernels(&self) -> &'static Kernels {
        self.variant.kernels().expect("a variant that runs")
    }

    /// Head dim.
    #[inline(always)]
    pub fn d(&self) -> usize {
        usize::from(self.spec.head_dim)
    }

    /// Tokens of a page.
    #[inline(always)]
    pub fn page_tokens(&self) -> usize {
        usize::from(self.spec.page_tokens)
    }

    /// KV heads.
    pub fn heads(&self) -> usize {
        usize::from(self.spec.kv_heads)
    }

    /// Query heads of a KV head.
    pub fn group(&self) -> usize {
        usize::from(self.spec.query_heads / self.spec.kv_heads)
    }
}
