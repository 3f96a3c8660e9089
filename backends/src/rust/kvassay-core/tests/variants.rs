//! Every method of every variant that runs here, bit for bit against the scalar one.

use kvassay_core::codec::Codec;
use kvassay_core::kernels::{Fp16Rows, Kernels, Queries, SCALAR, TOGETHER, Variant};
use kvassay_core::spec::Family;
use kvassay_core::transform::{Stream, Transform};

/// What a method gave, as bits, with its name and the shape.
type Output = (String, Vec<u32>);

/// Numbers that every run gets alike.
struct Draw(u64);

impl Draw {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    /// Within -scale .. scale, near normal, with some zeros of both signs.
    fn floats(&mut self, n: usize, scale: f32) -> Vec<f32> {
        let mut one = || (self.bits() % 65_536) as f32 / 32_768.0 - 1.0;
        let sums: Vec<f32> = (0..n).map(|_| (one() + one() + one()) / 3.0 * scale).collect();
        sums.iter().enumerate().map(|(i, x)| if i % 31 == 7 { x * 0.0 } else { *x }).collect()
    }

    /// fp16 in bytes, finite, subnormals among them.
    fn halves(&mut self, n: usize) -> Vec<u8> {
        let one = |h: u64| if h & 0x7c00 == 0x7c00 { h & 0x83ff } else { h };
        (0..n).flat_map(|_| (one(self.bits() & 0xffff) as u16).to_le_bytes()).collect()
    }

    fn below(&mut self, n: usize, limit: u64) -> Vec<u8> {
        (0..n).map(|_| (self.bits() % limit) as u8).collect()
    }
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

fn integers(x: &[i32]) -> Vec<u32> {
    x.iter().map(|x| *x as u32).collect()
}

fn wide(x: &[u8]) -> Vec<u32> {
    x.iter().map(|x| u32::from(*x)).collect()
}

const DIMS: [usize; 5] = [16, 48, 64, 112, 576];

fn codecs(d: usize) -> Vec<(String, Codec)> {
    let turbo = (0x14..=0x18).map(|mode| (format!("turbo {mode:#x}, d = {d}"), Codec::new(Family::Turbo, mode, d)));
    let kivi = [0x24, 0x26, 0x28].map(|mode| (format!("kivi {mode:#x}, d = {d}"), Codec::new(Family::Kivi, mode, d)));
    turbo.chain(kivi).chain([(format!("signs, d = {d}"), Codec::signs(d))]).collect()
}

/// Everything of one variant, in an order that does not depend on it.
fn outputs(k: &Kernels) -> Vec<Output> {
    let mut all = Vec::new();
    let mut draw = Draw(1);
    for d in DIMS {
        fp16(k, d, &mut draw, &mut all);
        transforms(k, d, &mut draw, &mut all);
        affine(k, d, &mut draw, &mut all);
        for (name, codec) in codecs(d) {
            codes(k, &codec, d, &name, &mut draw, &mut all);
            sums(k, &codec, d, &name, &mut draw, &mut all);
        }
    }
    for n in [1, 3, 16, 31, 48, 1024] {
        softmax(k, n, &mut draw, &mut all);
        combinations(k, n, &mut draw, &mut all);
    }
    let data = draw.below(1000, 256);
    all.extend([0, 15, 127, 128, 200, 1000].map(|n| (format!("crc32 {n}"), vec![k.crc32(0xdead, &data[..n])])));
    all
}

fn fp16(k: &Kernels, d: usize, draw: &mut Draw, all: &mut Vec<Output>) {
    let tiny = 2f32.powi(-24);
    for scale in [1.0, 65504.0, tiny * 300.0, 70000.0, f32::NAN] {
        let (x, mut out) = (draw.floats(d + 3, scale), vec![0; 2 * d + 6]);
        let mut good = k.narrow(&x, &mut out);
        let finite = out.clone();
        let mut last = draw.floats(d, 1.0);
        last[d - 1] = scale;
        good ^= k.narrow(&last, &mut out);
        // What is written where a number is refused is of no use.
        let kept = if x.iter().all(|x| x.abs() <= 65504.0) { wide(&finite) } else { vec![] };
        all.push((format!("narrow {scale}, d = {d}"), [vec![u32::from(good)], kept].concat()));
    }
    let (x, mean) = (draw.halves(d), draw.halves(d));
    for mean in [&[][..], &mean] {
        let mut out = vec![0.0; d];
        k.widen(&x, mean, &mut out);
        all.push((format!("widen {}, d = {d}", mean.len()), bits(&out)));
    }
    for (rows, tokens) in [(1, 1), (2, 7), (3, 16), (5, 33), (9, 4)] {
        let stride = 2 * d + 32;
        let data: Vec<u8> = (0..tokens).flat_map(|_| draw.halves(stride / 2)).collect();
        let x = Fp16Rows { data: &data, stride, count: tokens };
        let (q, p) = (draw.floats(rows * d, 1e-3), draw.floats(rows * (tokens + 5), 1e-3));
        let (mut t, mut acc) = (vec![0.0; rows * (tokens + 2)], draw.floats(rows * d, 1.0));
        k.dots(&q, d, x, &mut t, tokens + 2);
        k.weighted(&p, tokens + 5, d, x, &mut acc);
        all.push((format!("dots {rows} x {tokens}, d = {d}"), bits(&t)));
        all.push((format!("weighted {rows} x {tokens}, d = {d}"), bits(&acc)));
    }
}

fn transforms(k: &Kernels, d: usize, draw: &mut Draw, all: &mut Vec<Output>) {
    for rounds in [1, 2] {
        let t = Transform::new(7, Stream::Keys, d, rounds);
        let mut x = draw.floats(3 * d, 5.0);
        k.forward(&t, &mut x);
        all.push((format!("forward {rounds}, d = {d}"), bits(&x)));
        k.inverse(&t, &mut x);
        all.push((format!("inverse {rounds}, d = {d}"), bits(&x)));
    }
}

fn affine(k: &Kernels, d: usize, draw: &mut Draw, all: &mut Vec<Output>) {
    for bits in 2..=4 {
        for tokens in [16, 32] {
            let mut r = draw.floats(tokens * d, 3.0);
            r.iter_mut().step_by(d).for_each(|x| *x = 0.25); // a channel that is constant
            (r[1], r[d + 1]) = (65504.0, -65504.0); // a range beyond fp16
            let (mut codes, mut steps, mut minima) = (vec![0; tokens * d], vec![0; 2 * d], vec![0; 2 * d]);
            k.affine_keys(bits, &r, d, &mut codes, &mut steps, &mut minima);
            let found = [wide(&codes), wide(&steps), wide(&minima)].concat();
            all.push((format!("affine_keys {bits}, {tokens} tokens, d = {d}"), found));
            let mut codes = vec![0; tokens];
            let (step, minimum) = k.affine_values(bits, &r[1..=tokens], &mut codes);
            let found = [wide(&codes), vec![step.into(), minimum.into()]].concat();
            all.push((format!("affine_values {bits}, {tokens} channels"), found));
        }
    }
}

fn codes(k: &Kernels, codec: &Codec, d: usize, name: &str, draw: &mut Draw, all: &mut Vec<Output>) {
    let tokens = 48;
    let codes = codes_of(codec, d, tokens, draw);
    let mut tiles = [vec![0; codec.bytes(tokens)], vec![0; codec.bytes(tokens)]];
    k.pack_keys(codec, d, &codes, &mut tiles[0]);
    all.push((format!("pack_keys {name}"), wide(&tiles[0])));
    k.pack_values(codec, d, &codes, &mut tiles[1]);
    all.push((format!("pack_values {name}"), wide(&tiles[1])));
}

/// Codes `[tokens][d]`; the first token has the largest of each channel, the second the smallest.
fn codes_of(codec: &Codec, d: usize, tokens: usize, draw: &mut Draw) -> Vec<u8> {
    let mut codes = vec![0; tokens * d];
    for span in codec.spans() {
        for token in 0..tokens {
            let row = &mut codes[token * d + span.first..][..span.channels];
            match token {
                0 => row.fill((1 << span.bits) - 1),
                1 => row.fill(0),
                _ => row.copy_from_slice(&draw.below(span.channels, 1 << span.bits)),
            }
        }
    }
    codes
}

/// Scans and sums with what the variant itself makes of queries and weights, whose order is its own affair.
fn sums(k: &Kernels, codec: &Codec, d: usize, name: &str, draw: &mut Draw, all: &mut Vec<Output>) {
    let tokens = 48;
    let codes = codes_of(codec, d, tokens, draw);
    let mut tiles = vec![0; codec.bytes(tokens)];
    SCALAR.pack_keys(codec, d, &codes, &mut tiles);
    for rows in [1, 2, 3, 4, 7] {
        let mut z = draw.floats(rows * d, 3.0);
        z[..d].fill(1.5); // all of them the largest integer
        let mut out = vec![0; rows * tokens];
        let mut scales = Vec::new();
        if name.starts_with("kivi") {
            let (step, mut qi) = (draw.floats(d, 1.0), vec![0; rows * d]);
            for (z, qi) in z.chunks_exact(d).zip(qi.chunks_exact_mut(d)) {
                scales.push(k.query15(z, &step, qi));
            }
            k.keyscan15(codec, d, &tiles, tokens, &qi, &mut out);
            all.push((format!("query15 and keyscan15, {rows} rows, {name}"), [bits(&scales), integers(&out)].concat()));
            continue;
        }
        let (mut qi, mut prepared) = (vec![0; rows * d], vec![0; rows * d / 8]);
        let of_rows = qi.chunks_exact_mut(d).zip(prepared.chunks_exact_mut(d / 8));
        for (z, (qi, prepared)) in z.chunks_exact(d).zip(of_rows) {
            scales.push(k.query8(z, qi));
            k.prepare(codec, qi, prepared);
        }
        let mut arranged = vec![0; rows.div_ceil(TOGETHER) * k.arranged(d)];
        k.arrange(codec, d, &qi, &mut arranged);
        let queries = Queries { qi: &qi, prepared: &prepared, arranged: &arranged };
        k.keyscan(codec, d, &tiles, tokens, queries, &mut out);
        let query = qi.iter().map(|q| *q as u32).collect();
        all.push((format!("query8, {rows} rows, {name}"), [bits(&scales), query].concat()));
        all.push((format!("keyscan {rows} rows, {name}"), integers(&out)));
    }
    SCALAR.pack_values(codec, d, &codes, &mut tiles);
    let mut rest = &tiles[..];
    for span in codec.spans().iter().filter(|span| span.bits > 1) {
        for rows in [1, 2, 3, 4, 7] {
            let (p, su) = (draw.floats(rows * tokens, 1.0), draw.floats(tokens, 4.0));
            let (mut iw, mut largest) = (vec![0; rows * tokens], Vec::new());
            for (row, iw) in iw.chunks_exact_mut(tokens).enumerate() {
                // The first row's weights are all the largest.
                let p: Vec<f32> = p[row * tokens..][..tokens].iter().map(|p| p.abs()).collect();
                let su: Vec<f32> = su.iter().map(|s| s.abs()).collect();
                let even = vec![1.0; tokens];
                largest.push(if row == 0 { k.weigh(&even, &even, iw) } else { k.weigh(&p, &su, iw) });
            }
            let mut out = vec![0; rows * span.channels];
            k.valuesum(span, rest, tokens, &iw, &mut out);
            let found = [bits(&largest), integers(&out)].concat();
            all.push((format!("weigh and valuesum, {rows} rows, {} bits, {name}", span.bits), found));
        }
        rest = &rest[span.bytes(tokens)..];
    }
}

fn softmax(k: &Kernels, n: usize, draw: &mut Draw, all: &mut Vec<Output>) {
    let t = draw.floats(n, 90.0);
    let most = k.maximum(&t);
    // Of zeros of both signs either may be returned.
    all.push((format!("maximum {n}"), vec![(most + 0.0).to_bits()]));
    for phase in [0, 5] {
        let (mut t, mut stripes) = (t.clone(), [0.125; 16]);
        k.exponentials(&mut t, most + 0.0, &mut stripes, phase);
        all.push((format!("exponentials {n}, {phase}"), [bits(&t), bits(&stripes)].concat()));
    }
    if n.is_multiple_of(16) {
        let mut iw = vec![1; n];
        let largest = k.weigh(&vec![2f32.powi(-40); n], &vec![2f32.powi(-30); n], &mut iw);
        let found = iw.iter().map(|w| *w as u32).chain([largest.to_bits()]).collect();
        all.push((format!("weigh, too small, {n}"), found));
    }
}

fn combinations(k: &Kernels, n: usize, draw: &mut Draw, all: &mut Vec<Output>) {
    let sum: Vec<i32> = (0..n).map(|_| draw.bits() as i32 - (1 << 30)).collect();
    let (su, start) = (draw.floats(n, 200.0), draw.floats(n, 9.0));
    let mut each = |name: &str, run: &dyn Fn(&mut [f32])| {
        let mut t = start.clone();
        run(&mut t);
        all.push((format!("{name} {n}"), bits(&t)));
    };
    each("logits", &|t| k.logits(&sum, &su, 0.3, t));
    each("add_logits", &|t| k.add_logits(&sum, &su, 0.3, t));
    each("affine_logits", &|t| k.affine_logits(&sum, 0.7, -0.1, t));
    each("shift", &|t| k.shift(t, 0.1));
    each("blend", &|t| k.blend(t, &sum, 0.9, 0.7));
    each("blend_affine", &|t| k.blend_affine(t, &sum, 0.9, 0.7, 0.3, 1.1));
    each("blend_rows", &|t| k.blend_rows(t, &su, 0.9, 1.1));
}

/// Names of the outputs that differ.
fn differences(found: &[Output]) -> Vec<String> {
    let expected = outputs(&SCALAR);
    assert_eq!(expected.len(), found.len());
    expected.iter().zip(found).filter(|(e, f)| e != f).map(|(e, _)| e.0.clone()).collect()
}

#[test]
fn every_variant_gives_the_bits_of_scalar() {
    for variant in &Variant::ALL[1..] {
        match variant.kernels() {
            Ok(kernels) => {
                let wrong = differences(&outputs(kernels));
                assert!(
                    wrong.is_empty(),
                    "{}: {} differ: {:#?}",
                    variant.name(),
                    wrong.len(),
                    &wrong[..wrong.len().min(20)]
                );
                println!("{}: all outputs have the bits of scalar", variant.name());
            }
            Err(error) => println!("{}: not run: {error}", variant.name()),
        }
    }
}

/// The test of the test: one bit of any output is noticed.
#[test]
fn one_wrong_bit_is_found() {
    let mut found = outputs(&SCALAR);
    let name = found[17].0.clone();
    found[17].1[0] ^= 1;
    assert_eq!(differences(&found), [name]);
}
