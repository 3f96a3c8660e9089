//! Key scans with queries of 7 bits. Two products of a byte and a query fit 16 bits, and so does the sum over a window of
//! tiles once the start is added, though not before: words wrap on the way and come out right. One `vpmaddwd` then
//! widens what a window has. Two tiles always fit; how many more depends on the queries.

use std::arch::x86_64::*;

use super::scan::{ROWS, Sums};
use super::tiles::{decode, table};
use crate::codec::{Codec, Span};
use crate::kernels::sums::Sums as _;
use crate::kernels::{Queries, for_rows};
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

/// Sixteen sums.
#[inline]
#[target_feature(enable = "avx2")]
fn load(sums: &[i32; 16]) -> [__m256i; 2] {
    // SAFETY: two times eight numbers are read.
    unsafe { [_mm256_loadu_si256(sums.as_ptr().cast()), _mm256_loadu_si256(sums[8..].as_ptr().cast())] }
}

/// Rows of d side by side, four channels a place; rows that there are not are zeros.
#[inline]
#[target_feature(enable = "avx2")]
fn side_by_side(q: &[i8], d: usize, places: &mut [Place]) {
    let mut rows = [&[[0i8; 16]; 0][..]; ROWS];
    for (row, q) in rows.iter_mut().zip(q.chunks_exact(d)) {
        *row = q.as_chunks().0;
    }
    for (n, places) in places.as_chunks_mut::<4>().0.iter_mut().enumerate() {
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
}

/// What the sums of a span's windows start from, of windows as long as cannot overflow; the result is their tiles.
#[inline]
#[target_feature(enable = "avx2")]
fn windows(span: &Span, places: &[Place], starts: &mut [Place]) -> i32 {
    let (zero, one) = (_mm_setzero_si128(), _mm_set1_epi8(1));
    let short = _mm_set1_epi8(-span.table[0]);
    // Sums of magnitudes, by words as the starts are.
    let mut sizes = [zero; MOST_CHANNELS / 8];
    let pairs = places.as_chunks::<2>().0.iter().zip(&mut sizes).zip(&mut *starts);
    for (([a, b], size), start) in pairs {
        let (a, b) = (get(a), get(b));
        let sum = _mm_add_epi16(_mm_maddubs_epi16(short, a), _mm_maddubs_epi16(short, b));
        put(_mm_sub_epi16(zero, sum), start);
        *size = _mm_maddubs_epi16(_mm_add_epi8(_mm_abs_epi8(a), _mm_abs_epi8(b)), one);
    }
    let limit = _mm_set1_epi16((32767 / span.largest()) as i16);
    let (mut tiles, mut count) = (2, starts.len());
    while tiles < 8 && count > 1 {
        let mut most = zero;
        for pair in sizes[..count].chunks(2) {
            most = _mm_max_epi16(most, if let [a, b] = pair { _mm_add_epi16(*a, *b) } else { pair[0] });
        }
        if _mm_movemask_epi8(_mm_cmpgt_epi16(most, limit)) != 0 {
            break;
        }
        for n in 0..count.div_ceil(2) {
            (sizes[n], starts[n]) = (sizes[2 * n], starts[2 * n]);
            if 2 * n + 1 < count {
                sizes[n] = _mm_add_epi16(sizes[n], sizes[2 * n + 1]);
                put(_mm_add_epi16(get(&starts[n]), get(&starts[2 * n + 1])), &mut starts[n]);
            }
        }
        count = count.div_ceil(2);
        tiles *= 2;
    }
    tiles
}

/// A span's tiles: `bytes` of each block of sixteen tokens, which lie `stride` apart.
struct Tiles<'a> {
    data: &'a [u8],
    stride: usize,
    bytes: usize,
    tokens: usize,
}

/// Places of four rows: queries, then starts of each span, then how many tiles their windows have.
const fn places(d: usize) -> usize {
    d / 4 + d / 8 + 1
}

/// Numbers of four rows.
pub fn arranged(d: usize) -> usize {
    ROWS * places(d)
}

/// Rows of d, four at a time.
#[target_feature(enable = "avx2")]
pub fn arrange(codec: &Codec, d: usize, qi: &[i8], arranged: &mut [i32]) {
    for (q, room) in qi.chunks(ROWS * d).zip(arranged.as_chunks_mut().0.chunks_exact_mut(places(d))) {
        arrange_rows(codec, d, q, room);
    }
}

#[target_feature(enable = "avx2")]
fn arrange_rows(codec: &Codec, d: usize, q: &[i8], room: &mut [Place]) {
    let (places, room) = room.split_at_mut(d / 4);
    side_by_side(q, d, places);
    let (starts, tiles) = room.split_at_mut(d / 8);
    for (span, tiles) in codec.spans().iter().zip(&mut tiles[0]) {
        let (from, to) = (span.first / 4, (span.first + span.channels) / 4);
        *tiles = windows(span, &places[from..to], &mut starts[from / 2..to / 2]);
    }
}

#[target_feature(enable = "avx2")]
pub fn keyscan(codec: &Codec, d: usize, tiles: &[u8], tokens: usize, q: Queries<'_>, out: &mut [i32]) {
    let mut known = q.arranged.as_chunks().0.chunks_exact(places(d));
    for (q, out) in q.qi.chunks(ROWS * d).zip(out.chunks_mut(ROWS * tokens)) {
        if let Some(arranged) = known.next() {
            keyscan_rows(codec, d, tiles, tokens, arranged, out);
        } else {
            let mut room = [[0; ROWS]; places(MOST_CHANNELS)];
            arrange_rows(codec, d, q, &mut room);
            keyscan_rows(codec, d, tiles, tokens, &room, out);
        }
    }
}

/// As many rows as `out` has, at most four.
#[target_feature(enable = "avx2")]
fn keyscan_rows(codec: &Codec, d: usize, tiles: &[u8], tokens: usize, arranged: &[Place], out: &mut [i32]) {
    let (places, rest) = arranged.split_at(d / 4);
    let (starts, windows) = rest.split_at(d / 8);
    let mut before = 0;
    for (span, window) in codec.spans().iter().zip(windows[0]) {
        let (from, to) = (span.first / 4, (span.first + span.channels) / 4);
        let (places, starts) = (&places[from..to], &starts[from / 2..to / 2]);
        let tiles = Tiles { data: &tiles[before..], stride: codec.bytes(16), bytes: span.bytes(16), tokens };
        before += span.bytes(16);
        let rows = out.len() / tokens;
        for_rows!(rows, keyscan_span(span, &tiles, places, window as usize, starts, out));
    }
}

/// Adds a span's products to `out`, `[R][tokens]`, or puts them there if it is the first.
#[target_feature(enable = "avx2")]
fn keyscan_span<const R: usize>(
    span: &Span,
    tiles: &Tiles<'_>,
    places: &[Place],
    window: usize,
    starts: &[Place],
    out: &mut [i32],
) {
    match span.bits {
        1 => keyscan_bits::<R, 1>(span, tiles, places, window, starts, out),
        2 => keyscan_bits::<R, 2>(span, tiles, places, window, starts, out),
        3 => keyscan_bits::<R, 3>(span, tiles, places, window, starts, out),
        _ => keyscan_bits::<R, 4>(span, tiles, places, window, starts, out),
    }
}

#[inline(never)] // each with registers of its own
#[target_feature(enable = "avx2")]
fn keyscan_bits<const R: usize, const BITS: usize>(
    span: &Span,
    tiles: &Tiles<'_>,
    places: &[Place],
    window: usize,
    starts: &[Place],
    out: &mut [i32],
) {
    let (table, ones) = (table::<BITS>(span), _mm256_set1_epi16(1));
    for block in 0..tiles.tokens / 16 {
        let mut of_block = tiles.data[block * tiles.stride..][..tiles.bytes].chunks_exact(8 * BITS);
        let mut sums: Sums<R> = [[_mm256_setzero_si256(); 2]; R];
        if span.first > 0 {
            for (r, sums) in sums.iter_mut().enumerate() {
                *sums = load(out[r * tiles.tokens + 16 * block..].first_chunk().expect("sixteen tokens"));
            }
        }
        let (mut rest, mut starts) = (places, starts.iter());
        while let (false, Some(start)) = (rest.is_empty(), starts.next()) {
            let (places, after) = rest.split_at(window.min(rest.len()));
            rest = after;
            let mut words: Sums<R> = [[_mm256_setzero_si256(); 2]; R];
            for r in 0..R {
                words[r] = [_mm256_set1_epi32(start[r]); 2];
            }
            for (place, tile) in places.iter().zip(of_block.by_ref()) {
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
        for (r, sums) in sums.into_iter().enumerate() {
            sums.store(out[r * tiles.tokens + 16 * block..].first_chunk_mut().expect("sixteen tokens"));
        }
    }
}
