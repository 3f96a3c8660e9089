//! Every variant that runs here gives the bits of the portable one.

use super::*;
use crate::spec::Family;
use crate::transform::Stream;

/// Head dims whose blocks, spans and groups differ.
const DIMS: [usize; 6] = [16, 48, 64, 128, 144, 576];
const TOKENS: usize = 32;

fn each_variant(check: impl Fn(&str, &dyn Kernels)) {
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
fn encoded(kernels: &dyn Kernels, turbo: &Turbo<'_>, rows: &[u8], mean: &[u8]) -> (Vec<u8>, Vec<u32>) {
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
            Scalar.mean(view(&x, d), d, &mut mean);
            for (mode, rounds) in [(0x14, 2), (0x15, 1), (0x16, 2), (0x17, 2), (0x18, 1)] {
                let codec = Codec::new(Family::Turbo, mode, d);
                for (role, stream, mean) in [
                    (Role::Keys, Stream::Keys, mean.as_slice()),
                    (Role::SignedKeys, Stream::Keys, &[]),
                    (Role::Values, Stream::Values, &[]),
                ] {
                    let turbo = Turbo { codec: &codec, transform: &Transform::new(7, stream, d, rounds), role };
                    let what = format!("{name}, d = {d}, mode {mode:#x}, {role:?}");
                    assert_eq!(encoded(kernels, &turbo, &x, mean), encoded(&Scalar, &turbo, &x, mean), "{what}");
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
                Scalar.mean(view(&data, d), d, &mut expected);
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
            Scalar.widen(&rows(d, 5), &[], &mut r);
            r[0] = 65504.0; // a range beyond 65504
            r[1] = -65504.0;
            let of = |kernels: &dyn Kernels| {
                let (mut codes, mut steps, mut minima) = (vec![0; TOKENS * d], vec![0; 2 * d], vec![0; 2 * d]);
                kernels.affine_keys(bits, &r, d, &mut codes, &mut steps, &mut minima);
                (codes, steps, minima)
            };
            assert!(of(kernels) == of(&Scalar), "{name}, keys, {bits} bits");
            let of = |kernels: &dyn Kernels| -> Vec<(Vec<u8>, (u16, u16))> {
                let groups = r.chunks(d).flat_map(|row| row.chunks(32));
                let group = |r: &[f32]| {
                    let mut codes = vec![0; r.len()];
                    let affine = kernels.affine_values(bits, r, &mut codes);
                    (codes, affine)
                };
                groups.map(group).collect()
            };
            assert!(of(kernels) == of(&Scalar), "{name}, values, {bits} bits");
        }
    });
}
