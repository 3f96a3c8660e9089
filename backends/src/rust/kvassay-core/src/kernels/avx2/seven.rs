//! Key scans with queries of 7 bits. Two products of a byte and a query fit 16 bits, and so does the sum over a window of
//! tiles once the start is added, though not before: words wrap on the way and come out right. One `vpmaddwd` then
//! widens what a window has. Two tiles always fit; how many more depends on the queries.

use std::arch::x86_64::*;

use super::scan::{ROWS, Sums, store};
use super::tiles::{decode, table};
use crate::codec::Span;
use crate::transform::MOST_CHANNELS;

/// Four bytes, or two words, of each of four rows.
type Place = [i32; ROWS];

#[inline]
#[target_feature(enable = "avx2")]
fn get(place: &Place) -> __m128i {
    // SAFETY: sixteen bytes are read.
    unsafe { _mm_loadu_si128(place.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn put(x: __m128i, place: &mut Place) {
    // SAFETY: sixteen bytes are written.
    unsafe { _mm_storeu_si128(place.as_mut_ptr().cast(), x) };
}

/// Four rows of queries side by side, four channels a place; rows that there are not are zeros.
pub struct Places([Place; MOST_CHANNELS / 4]);

/// How many tiles a window of a span has, and what its sums start from.
pub struct Windows {
    tiles: usize,
    starts: [Place; MOST_CHANNELS / 8],
}

impl Places {
    /// Of rows of d.
    #[target_feature(enable = "avx2")]
    pub fn new(q: &[i8], d: usize) -> Self {
        let mut rows = [&[[0i8; 16]; 0][..]; ROWS];
        for (row, q) in rows.iter_mut().zip(q.chunks_exact(d)) {
            *row = q.as_chunks().0;
        }
        let mut places = [[0; ROWS]; MOST_CHANNELS / 4];
        for (n, places) in places[..d / 4].as_chunks_mut::<4>().0.iter_mut().enumerate() {
            let mut x = [_mm_setzero_si128(); ROWS];
            for (x, row) in x.iter_mut().zip(rows) {
                if let Some(row) = row.get(n) {
                    // SAFETY: sixteen bytes are read.
                    *x = unsafe { _mm_loadu_si128(row.as_ptr().cast()) };
                }
            }
            let low = [_mm_unpacklo_epi32(x[0], x[1]), _mm_unpacklo_epi32(x[2], x[3])];
            let high = [_mm_unpackhi_epi32(x[0], x[1]), _mm_unpackhi_epi32(x[2], x[3])];
            put(_mm_unpacklo_epi64(low[0], low[1]), &mut places[0]);
            put(_mm_unpackhi_epi64(low[0], low[1]), &mut places[1]);
            put(_mm_unpacklo_epi64(high[0], high[1]), &mut places[2]);
            put(_mm_unpackhi_epi64(high[0], high[1]), &mut places[3]);
        }
        Self(places)
    }

    fn of(&self, span: &Span) -> &[Place] {
        &self.0[span.first / 4..(span.first + span.channels) / 4]
    }

    /// As long as cannot overflow.
    #[target_feature(enable = "avx2")]
    pub fn windows(&self, span: &Span) -> Windows {
        let (zero, one) = (_mm_setzero_si128(), _mm_set1_epi8(1));
        let short = _mm_set1_epi8(-span.table[0]);
        let mut windows = Windows { tiles: 2, starts: [[0; ROWS]; MOST_CHANNELS / 8] };
        // Sums of magnitudes, by words as the starts are.
        let mut sizes = [zero; MOST_CHANNELS / 8];
        let mut count = span.channels / 8;
        for (n, [a, b]) in self.of(span).as_chunks::<2>().0.iter().enumerate() {
            let (a, b) = (get(a), get(b));
            let start = _mm_add_epi16(_mm_maddubs_epi16(short, a), _mm_maddubs_epi16(short, b));
            put(_mm_sub_epi16(zero, start), &mut windows.starts[n]);
            sizes[n] = _mm_maddubs_epi16(_mm_add_epi8(_mm_abs_epi8(a), _mm_abs_epi8(b)), one);
        }
        let limit = _mm_set1_epi16((32767 / span.largest()) as i16);
        while windows.tiles < 8 && count > 1 {
            let mut twice = sizes;
            let mut most = zero;
            for n in 0..count.div_ceil(2) {
                let second = if 2 * n + 1 < count { sizes[2 * n + 1] } else { zero };
                twice[n] = _mm_add_epi16(sizes[2 * n], second);
                most = _mm_max_epi16(most, twice[n]);
            }
            if _mm_movemask_epi8(_mm_cmpgt_epi16(most, limit)) != 0 {
                break;
            }
            for n in 0..count.div_ceil(2) {
                let mut start = get(&windows.starts[2 * n]);
                if 2 * n + 1 < count {
                    start = _mm_add_epi16(start, get(&windows.starts[2 * n + 1]));
                }
                put(start, &mut windows.starts[n]);
            }
            sizes = twice;
            count = count.div_ceil(2);
            windows.tiles *= 2;
        }
        windows
    }
}

/// Adds a span's products to `out`, `[R][tokens]`, or puts them there if it is the first; blocks of sixteen tokens.
#[target_feature(enable = "avx2")]
pub fn keyscan_span<'a, const R: usize>(
    span: &Span,
    blocks: impl ExactSizeIterator<Item = &'a [u8]>,
    places: &Places,
    windows: &Windows,
    out: &mut [i32],
) {
    let tokens = out.len() / R;
    let run = match span.bits {
        1 => of_block::<R, 1>,
        2 => of_block::<R, 2>,
        3 => of_block::<R, 3>,
        _ => of_block::<R, 4>,
    };
    for (block, tiles) in blocks.enumerate() {
        let mut sums: Sums<R> = [[_mm256_setzero_si256(); 2]; R];
        if span.first > 0 {
            for (r, sums) in sums.iter_mut().enumerate() {
                let out: &[i32; 16] = out[r * tokens + 16 * block..].first_chunk().expect("sixteen lanes");
                // SAFETY: two times eight numbers are read.
                *sums =
                    unsafe { [_mm256_loadu_si256(out.as_ptr().cast()), _mm256_loadu_si256(out[8..].as_ptr().cast())] };
            }
        }
        run(span, tiles, places.of(span), windows, &mut sums);
        for (r, sums) in sums.into_iter().enumerate() {
            store(sums, &mut out[r * tokens + 16 * block..]);
        }
    }
}

#[inline(never)] // each with registers of its own
#[target_feature(enable = "avx2")]
fn of_block<const R: usize, const BITS: usize>(
    span: &Span,
    tiles: &[u8],
    places: &[Place],
    windows: &Windows,
    sums: &mut Sums<R>,
) {
    let (table, ones) = (table::<BITS>(span), _mm256_set1_epi16(1));
    let of_windows = places.chunks(windows.tiles).zip(tiles.chunks(8 * BITS * windows.tiles));
    for ((places, tiles), start) in of_windows.zip(&windows.starts) {
        let mut words: Sums<R> = [[_mm256_setzero_si256(); 2]; R];
        for r in 0..R {
            words[r] = [_mm256_set1_epi32(start[r]); 2];
        }
        for (place, tile) in places.iter().zip(tiles.chunks_exact(8 * BITS)) {
            let x = decode::<BITS>(tile, table);
            for r in 0..R {
                let quad = _mm256_set1_epi32(place[r]);
                words[r][0] = _mm256_add_epi16(words[r][0], _mm256_maddubs_epi16(x[0], quad));
                words[r][1] = _mm256_add_epi16(words[r][1], _mm256_maddubs_epi16(x[1], quad));
            }
        }
        for r in 0..R {
            sums[r][0] = _mm256_add_epi32(sums[r][0], _mm256_madd_epi16(words[r][0], ones));
            sums[r][1] = _mm256_add_epi32(sums[r][1], _mm256_madd_epi16(words[r][1], ones));
        }
    }
}
