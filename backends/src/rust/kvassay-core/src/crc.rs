//! CRC-32 as in zlib.

const TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut t = [[0u32; 256]; 8];
    let mut i = 0;
    while i < 256 {
        let mut crc = i as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { 0xEDB8_8320 } else { 0 };
            bit += 1;
        }
        t[0][i] = crc;
        i += 1;
    }
    let mut k = 1;
    while k < 8 {
        let mut i = 0;
        while i < 256 {
            t[k][i] = t[k - 1][i] >> 8 ^ t[0][(t[k - 1][i] & 255) as usize];
            i += 1;
        }
        k += 1;
    }
    t
}

/// Continues a CRC; start from 0.
pub fn crc32(crc: u32, data: &[u8]) -> u32 {
    let mut crc = !crc;
    let (words, rest) = data.as_chunks::<8>();
    for word in words {
        let x = u64::from_le_bytes(*word) ^ u64::from(crc);
        crc = 0;
        for (k, table) in TABLES.iter().rev().enumerate() {
            crc ^= table[(x >> (8 * k) & 255) as usize];
        }
    }
    for byte in rest {
        crc = crc >> 8 ^ TABLES[0][((crc ^ u32::from(*byte)) & 255) as usize];
    }
    !crc
}

/// The CRC of bytes with the four at `hole` taken as 0.
pub fn with_hole(data: &[u8], hole: usize) -> u32 {
    let crc = crc32(crc32(0, &data[..hole]), &[0; 4]);
    crc32(crc, &data[hole + 4..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_in_zlib() {
        assert_eq!(crc32(0, b"123456789"), 0xCBF4_3926);
        assert_eq!(crc32(crc32(0, b"1234"), b"56789"), 0xCBF4_3926);
        assert_eq!(with_hole(b"12....3456789", 2), crc32(0, b"12\0\0\0\x003456789"));
    }
}
