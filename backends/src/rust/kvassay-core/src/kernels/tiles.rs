//! Tiles of 64 codes (page format, tiles).

/// The codes of one tile.
pub type Codes = [u8; 64];

/// Reads a tile of `BITS`-bit codes.
#[inline(always)]
pub fn unpack<const BITS: usize>(tile: &[u8]) -> Codes {
    let mut codes = [0; 64];
    match BITS {
        4 => {
            let tile: &[u8; 32] = tile.first_chunk().expect("a tile of 4 bits");
            for j in 0..32 {
                codes[j] = tile[j] & 15;
            }
            for j in 0..32 {
                codes[j + 32] = tile[j] >> 4;
            }
        }
        2 | 3 => {
            let low: &[u8; 16] = tile.first_chunk().expect("a tile of 2 or 3 bits");
            for k in 0..4 {
                for j in 0..16 {
                    codes[16 * k + j] = low[j] >> (2 * k) & 3;
                }
            }
            if BITS == 3 {
                for (code, bit) in codes.iter_mut().zip(plane(&tile[16..])) {
                    *code |= bit << 2;
                }
            }
        }
        _ => return plane(tile),
    }
    codes
}

/// One bit of each code, as 0 or 1.
#[inline(always)]
fn plane(bits: &[u8]) -> Codes {
    let bits: &[u8; 8] = bits.first_chunk().expect("64 bits");
    let mut codes = [0; 64];
    for (codes, byte) in codes.as_chunks_mut::<8>().0.iter_mut().zip(bits) {
        // Byte i keeps bit i; what is not 0 carries into the highest bit.
        let each = u64::from(*byte).wrapping_mul(0x0101_0101_0101_0101) & 0x8040_2010_0804_0201;
        let set = (each + 0x7f7f_7f7f_7f7f_7f7f) >> 7 & 0x0101_0101_0101_0101;
        *codes = set.to_le_bytes();
    }
    codes
}

/// Writes a tile of `bits`-bit codes.
#[inline(always)]
pub fn pack(codes: &Codes, bits: usize, tile: &mut [u8]) {
    match bits {
        4 => {
            let tile: &mut [u8; 32] = tile.first_chunk_mut().expect("a tile of 4 bits");
            for j in 0..32 {
                tile[j] = codes[j] | codes[j + 32] << 4;
            }
        }
        2 | 3 => {
            let low: &mut [u8; 16] = tile.first_chunk_mut().expect("a tile of 2 or 3 bits");
            for j in 0..16 {
                low[j] = (codes[j] & 3) | (codes[j + 16] & 3) << 2 | (codes[j + 32] & 3) << 4 | codes[j + 48] << 6;
            }
            if bits == 3 {
                tile[16..24].copy_from_slice(&gather(codes, 2).to_le_bytes());
            }
        }
        _ => tile[..8].copy_from_slice(&gather(codes, 0).to_le_bytes()),
    }
}

/// Bit `bit` of each code.
#[inline(always)]
fn gather(codes: &Codes, bit: u32) -> u64 {
    let mut bits = 0;
    for (i, codes) in codes.as_chunks::<8>().0.iter().enumerate() {
        let ones = u64::from_le_bytes(*codes) >> bit & 0x0101_0101_0101_0101;
        // The product brings bit 8 k to bit 56 + k; no sum of what is below carries.
        bits |= (ones.wrapping_mul(0x0102_0408_1020_4080) >> 56) << (8 * i);
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_read() {
        for bits in 1..=4 {
            let codes: Codes = std::array::from_fn(|i| (i * 7 % 16) as u8 & ((1 << bits) - 1));
            let mut tile = [0; 32];
            pack(&codes, bits, &mut tile);
            let read = match bits {
                1 => unpack::<1>(&tile),
                2 => unpack::<2>(&tile),
                3 => unpack::<3>(&tile),
                _ => unpack::<4>(&tile),
            };
            assert_eq!(read, codes, "{bits} bits");
        }
    }
}
