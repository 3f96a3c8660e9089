//! The permuted-block Hadamard transform (numeric contract, section 4): its tables.

/// Largest head dim.
pub const MOST_CHANNELS: usize = 576;

/// Which stream a transform is drawn for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Keys.
    Keys = 0,
    /// Values.
    Values = 1,
    /// The sign projection.
    Signs = 2,
}

/// Signs and permutation of one transform; plain data.
#[derive(Clone, Copy, Debug)]
pub struct Transform {
    /// Head dim.
    pub d: usize,
    /// The largest power of two that divides it.
    pub block: usize,
    /// 1 or 2.
    pub rounds: u8,
    first: [f32; MOST_CHANNELS],
    second: [f32; MOST_CHANNELS],
    order: [u16; MOST_CHANNELS],
}

impl Transform {
    /// The transform of one stream of a spec.
    pub fn new(seed: u64, stream: Stream, d: usize, rounds: u8) -> Self {
        let salt = 0xD1B5_4A32_D192_ED03u64.wrapping_mul(stream as u64 + 1);
        let mut draw = SplitMix(mix(seed ^ salt));
        let first = draw.signs(d);
        let (mut second, mut order) = ([1.0; MOST_CHANNELS], [0; MOST_CHANNELS]);
        if rounds == 2 {
            order = draw.permutation(d);
            second = draw.signs(d);
        }
        Self { d, block: 1 << d.trailing_zeros(), rounds, first, second, order }
    }

    /// `s1`, as factors 1 and -1.
    #[inline(always)]
    pub fn first(&self) -> &[f32] {
        &self.first[..self.d]
    }

    /// `s2`, likewise.
    #[inline(always)]
    pub fn second(&self) -> &[f32] {
        &self.second[..self.d]
    }

    /// `perm`.
    #[inline(always)]
    pub fn order(&self) -> &[u16] {
        &self.order[..self.d]
    }
}

/// The generator, a map from state to number.
fn mix(mut z: u64) -> u64 {
    z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}

struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    fn signs(&mut self, d: usize) -> [f32; MOST_CHANNELS] {
        let mut signs = [1.0; MOST_CHANNELS];
        for word in signs[..d].chunks_mut(64) {
            let bits = self.next();
            for (i, sign) in word.iter_mut().enumerate() {
                *sign = if bits >> i & 1 == 1 { -1.0 } else { 1.0 };
            }
        }
        signs
    }

    fn permutation(&mut self, d: usize) -> [u16; MOST_CHANNELS] {
        let mut order = std::array::from_fn(|i| i as u16);
        for i in (1..d).rev() {
            let j = ((self.next() >> 32) * (i as u64 + 1)) >> 32;
            order.swap(i, j as usize);
        }
        order
    }
}
