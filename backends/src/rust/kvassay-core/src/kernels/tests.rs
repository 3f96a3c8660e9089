//! Every variant that runs here gives the bits of the portable one.

use super::*;
use crate::half;
use crate::spec::Family;
use crate::transform::Stream;

/// Head dims whose blocks, spans and groups differ.
const DIMS: [usize; 6] = [16, 48, 64, 128, 144, 576];
const TOKENS: usize = 32;

fn each_variant(check: impl Fn(&str, &Kernels)) {
    for variant in Variant::ALL.iter().filter(|v| **v != Variant::Scalar) {
        if let Ok(kernels) = variant.kernels() {
            check(variant.name(), kernels);
        }
    }
}

/// Numbers of both signs, as fp16; some rows are zeros, one is constant.
fn rows(d: usize, seed: u32) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 2f32.powi(23) - 1.0
    };
    let of_row = |j: usize, x: f32| match j % 11 {
        3 => 0.0,
        5 => -2.5,
        _ => x * x * x * 40.0,
    };
    (0..TOKENS)
        .flat_map(|j| (0..d).map(move |_| j))
        .flat_map(|j| half::narrow(of_row(j, next())).to_le_bytes())
        .collect()
}

fn view(data: &[u8], d: usize) -> Fp16Rows<'_> {
    Fp16Rows { data, stride: 2 * d, count: TOKENS }
}

/// Tiles, scales and what `signs` makes of the keys.
fn encoded(kernels: &Kernels, turbo: &Turbo<'_>, rows: &[u8], mean: &[u8]) -> (Vec<u8>, Vec<u32>) {
    let d = turbo.transform.d;
    let (mut y, mut scales, mut norms) = (vec![0.0; TOKENS * d], vec![0.0; TOKENS], vec![0.0; TOKENS]);
    let mut codes = vec![0; TOKENS * d];
    let mut work = Workspace { y: &mut y, scales: &mut scales, norms: &mut norms, codes: &mut codes };
    let mut tiles = vec![0; turbo.codec.bytes(TOKENS)];
    kernels.encode(turbo, view(rows, d), mean, &mut work, &mut tiles);
    let mut numbers: Vec<u32> = work.scales.iter().map(|s| s.to_bits()).collect();
    if turbo.role == Role::SignedKeys {
        let mut signs = vec![0; TOKENS * d / 8];
        kernels.signs(turbo.codec, &Transform::new(7, Stream::Signs, d, turbo.transform.rounds), &mut work, &mut signs);
        numbers.extend(work.norms.iter().map(|n| n.to_bits()));
        tiles.extend(signs);
    }
    (tiles, numbers)
}

#[test]
fn turbo_pages_agree() {
    each_variant(|name, kernels| {
        for d in DIMS {
            let x = rows(d, d as u32);
            let mut mean = vec![0; 2 * d];
            SCALAR.mean(view(&x, d), d, &mut mean);
            for (mode, rounds) in [(0x14, 2), (0x15, 1), (0x16, 2), (0x17, 2), (0x18, 1)] {
                let codec = Codec::new(Family::Turbo, mode, d);
                for (role, stream, mean) in [
                    (Role::Keys, Stream::Keys, mean.as_slice()),
                    (Role::SignedKeys, Stream::Keys, &[]),
                    (Role::Values, Stream::Values, &[]),
                ] {
                    let turbo = Turbo { codec: &codec, transform: &Transform::new(7, stream, d, rounds), role };
                    let what = format!("{name}, d = {d}, mode {mode:#x}, {role:?}");
                    assert_eq!(encoded(kernels, &turbo, &x, mean), encoded(&SCALAR, &turbo, &x, mean), "{what}");
                }
            }
        }
    });
}

#[test]
fn means_agree_and_saturate() {
    each_variant(|name, kernels| {
        for d in DIMS {
            for data in [rows(d, 9), half::narrow(65504.0).to_le_bytes().repeat(TOKENS * d)] {
                let (mut found, mut expected) = (vec![0; 2 * d], vec![0; 2 * d]);
                kernels.mean(view(&data, d), d, &mut found);
                SCALAR.mean(view(&data, d), d, &mut expected);
                assert_eq!(found, expected, "{name}, d = {d}");
            }
        }
    });
}

#[test]
fn kivi_groups_agree() {
    each_variant(|name, kernels| {
        for (d, bits) in [(16, 2), (64, 3), (144, 4)] {
            let mut r = vec![0.0; TOKENS * d];
            SCALAR.widen(&rows(d, 5), &[], &mut r);
            r[0] = 65504.0; // a range beyond 65504
            r[1] = -65504.0;
            let of = |kernels: &Kernels| {
                let (mut codes, mut steps, mut minima) = (vec![0; TOKENS * d], vec![0; 2 * d], vec![0; 2 * d]);
                kernels.affine_keys(bits, &r, d, &mut codes, &mut steps, &mut minima);
                (codes, steps, minima)
            };
            assert!(of(kernels) == of(&SCALAR), "{name}, keys, {bits} bits");
            let of = |kernels: &Kernels| -> Vec<(Vec<u8>, (u16, u16))> {
                let groups = r.chunks(d).flat_map(|row| row.chunks(32));
                let group = |r: &[f32]| {
                    let mut codes = vec![0; r.len()];
                    let affine = kernels.affine_values(bits, r, &mut codes);
                    (codes, affine)
                };
                groups.map(group).collect()
            };
            assert!(of(kernels) == of(&SCALAR), "{name}, values, {bits} bits");
        }
    });
}

/// Codes `[TOKENS][d]` of a codec.
fn codes(codec: &Codec, d: usize) -> Vec<u8> {
    let mut codes = vec![0; TOKENS * d];
    for (i, code) in codes.iter_mut().enumerate() {
        let span = codec.spans().iter().rfind(|span| span.first <= i % d).expect("a span of every channel");
        *code = ((i * i / 7 + i) % (1 << span.bits)) as u8;
    }
    codes
}

fn codecs(d: usize) -> Vec<Codec> {
    let turbo = (0x14..=0x18).map(|mode| Codec::new(Family::Turbo, mode, d));
    let kivi = [0x24, 0x26, 0x28].map(|mode| Codec::new(Family::Kivi, mode, d));
    turbo.chain(kivi).chain([Codec::signs(d)]).collect()
}

/// Whole numbers of magnitude up to `most`; of the first row all are.
fn multipliers(rows: usize, n: usize, most: i32) -> Vec<i16> {
    (0..rows * n).map(|i| if i < n { most } else { (i as i32 * 7919) % (2 * most + 1) - most } as i16).collect()
}

fn every_variant(check: impl Fn(&str, &Kernels)) {
    check("scalar", &SCALAR);
    each_variant(check);
}

#[test]
fn key_scans_are_products_with_what_codes_stand_for() {
    every_variant(|name, kernels| {
        for (d, codec) in DIMS.into_iter().flat_map(|d| codecs(d).into_iter().map(move |codec| (d, codec))) {
            let codes = codes(&codec, d);
            let mut tiles = vec![0; codec.bytes(TOKENS)];
            kernels.pack_keys(&codec, d, &codes, &mut tiles);
            for rows in [1, 2, 3, 4, 7] {
                let q = multipliers(rows, d, 127);
                let product = |row: usize, token: usize| -> i32 {
                    let stands = |c: usize| {
                        let span = codec.spans().iter().rfind(|span| span.first <= c).expect("a span");
                        i32::from(span.table[usize::from(codes[token * d + c])])
                    };
                    (0..d).map(|c| i32::from(q[row * d + c]) * stands(c)).sum()
                };
                let expected: Vec<i32> = (0..rows)
                    .flat_map(|row| (0..TOKENS).map(move |token| (row, token)))
                    .map(|(r, t)| product(r, t))
                    .collect();
                let qi: Vec<i8> = q.iter().map(|q| *q as i8).collect();
                let mut prepared = vec![0; rows * d / 8];
                for (qi, prepared) in qi.chunks(d).zip(prepared.chunks_mut(d / 8)) {
                    kernels.prepare(&codec, qi, prepared);
                }
                let mut arranged = vec![0; rows.div_ceil(TOGETHER) * kernels.arranged(d)];
                kernels.arrange(&codec, d, &qi, &mut arranged);
                for arranged in [arranged.as_slice(), &[]] {
                    let mut found = vec![0; rows * TOKENS];
                    let queries = Queries { qi: &qi, prepared: &prepared, arranged };
                    kernels.keyscan(&codec, d, &tiles, TOKENS, queries, &mut found);
                    assert_eq!(found, expected, "{name}, d = {d}, {rows} rows, {:?}", codec.spans());
                }
            }
        }
    });
}

#[test]
fn sums_of_values_and_of_wide_queries_agree() {
    let of = |kernels: &Kernels, d: usize, codec: &Codec, rows: usize| {
        let codes = codes(codec, d);
        let (mut keys, mut values) = (vec![0; codec.bytes(TOKENS)], vec![0; codec.bytes(TOKENS)]);
        kernels.pack_keys(codec, d, &codes, &mut keys);
        kernels.pack_values(codec, d, &codes, &mut values);
        let (ones, step): (Vec<f32>, Vec<f32>) = (vec![1.0; d.max(TOKENS)], vec![0.5; d]);
        let mut sums = Vec::new();
        // As the variant orders them.
        let mut w = vec![0; rows * TOKENS];
        for (n, w) in w.chunks_mut(TOKENS).enumerate() {
            let p: Vec<f32> = (0..TOKENS).map(|i| 1.0 / (1.0 + (i * (n + 1)) as f32)).collect();
            kernels.weigh(&p, &ones[..TOKENS], w);
        }
        let mut rest = values.as_slice();
        for span in codec.spans() {
            let (tiles, after) = rest.split_at(span.bytes(TOKENS));
            rest = after;
            let mut out = vec![0; rows * span.channels];
            kernels.valuesum(span, tiles, TOKENS, &w, &mut out);
            sums.extend(out);
        }
        let mut qi = vec![0; rows * d];
        for (n, qi) in qi.chunks_mut(d).enumerate() {
            let q: Vec<f32> = (0..d).map(|c| (c as f32 - 20.0) * (n as f32 + 0.3)).collect();
            kernels.query15(&q, &step, qi);
        }
        let mut out = vec![0; rows * TOKENS];
        kernels.keyscan15(codec, d, &keys, TOKENS, &qi, &mut out);
        sums.extend(out);
        sums
    };
    each_variant(|name, kernels| {
        for d in DIMS {
            for codec in codecs(d).iter().filter(|codec| codec.spans()[0].bits > 1) {
                for rows in [1, 2, 3, 4, 6] {
                    let what = format!("{name}, d = {d}, {rows} rows, {:?}", codec.spans());
                    assert_eq!(of(kernels, d, codec, rows), of(&SCALAR, d, codec, rows), "{what}");
                }
            }
        }
    });
}

#[test]
fn products_with_one_row_agree() {
    each_variant(|name, kernels| {
        let x = rows(64, 3);
        let q: Vec<f32> = multipliers(6, 80, 100).into_iter().map(f32::from).collect();
        let (mut found, mut expected) = ([0.0; 6], [0.0; 6]);
        kernels.dot_each(&q, 80, &x[..128], &mut found);
        for (row, out) in expected.iter_mut().enumerate() {
            SCALAR.dots(&q[80 * row..80 * row + 64], 64, view(&x, 64).slice(0, 1), std::slice::from_mut(out), 1);
        }
        assert_eq!(found, expected, "{name}");
    });
}
