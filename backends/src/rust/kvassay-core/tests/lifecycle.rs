//! The life cycle, over one spec a family: the state is a function of the tokens alone.

use kvassay_core::{Cache, Config, Error, Kind, LayerSpec, Variant};

/// Key mode, value mode, key centring, value centring, scale kind.
const FAMILIES: [(u8, u8, u8, u8, u8); 5] =
    [(0, 0, 0, 0, 0), (0x17, 0x16, 2, 1, 0), (0x25, 0x18, 1, 0, 1), (0x34, 0x36, 2, 1, 0), (0x18, 0x15, 0, 1, 2)];
const TOKENS: usize = 90;

fn spec(family: (u8, u8, u8, u8, u8)) -> LayerSpec {
    let (key_mode, value_mode, key_centre, value_centre, scale_kind) = family;
    LayerSpec {
        kv_heads: 2,
        query_heads: 4,
        head_dim: 48,
        page_tokens: 16,
        key_mode,
        value_mode,
        key_centre,
        value_centre,
        scale_kind,
        rounds: 2,
        window: 20,
        sinks: 3,
        span: 0,
        softmax_scale: 0.2,
        seed: 7,
    }
}

fn new(spec: LayerSpec, variant: Variant) -> Cache {
    let mut config = Config::new(spec, 1, "{\"a\":1,\"b\":2}").unwrap();
    config.variant = variant;
    Cache::new(config).unwrap()
}

fn numbers(seed: u64, n: usize) -> Vec<f32> {
    let mut state = seed;
    let mut draw = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..n).map(|_| draw() + draw() + draw()).collect()
}

const WIDTH: usize = 2 * 48;

fn append(cache: &mut Cache, from: usize, to: usize) {
    let (keys, values) = (numbers(1, TOKENS * WIDTH), numbers(2, TOKENS * WIDTH));
    cache.append(0, &keys[from * WIDTH..to * WIDTH], &values[from * WIDTH..to * WIDTH], (to - from) as u64).unwrap();
}

fn filled(spec: LayerSpec, tokens: usize) -> Cache {
    let mut cache = new(spec, Variant::Scalar);
    append(&mut cache, 0, tokens);
    cache
}

fn dump(cache: &Cache) -> Vec<u8> {
    let mut bytes = vec![0; cache.dump_bytes() as usize];
    cache.dump(&mut bytes).unwrap();
    bytes
}

fn attend(cache: &mut Cache, queries: u64) -> Vec<u32> {
    let q = numbers(3, queries as usize * 4 * 48);
    let mut out = vec![0.0; q.len()];
    cache.attend(0, &q, queries, &mut out).unwrap();
    out.iter().map(|x| x.to_bits()).collect()
}

fn kind<T>(result: Result<T, Error>) -> Kind {
    result.err().expect("an error").kind
}

#[test]
fn chunking_changes_no_bit() {
    for family in FAMILIES {
        let mut whole = filled(spec(family), TOKENS);
        let mut pieces = new(spec(family), Variant::Scalar);
        (0..TOKENS).for_each(|token| append(&mut pieces, token, token + 1));
        assert_eq!(dump(&whole), dump(&pieces), "{family:x?}");
        assert_eq!(attend(&mut whole, 5), attend(&mut pieces, 5), "{family:x?}");
    }
}

#[test]
fn every_variant_has_the_bits_of_scalar() {
    for variant in Variant::ALL.iter().copied().filter(|variant| variant.kernels().is_ok()) {
        for d in [16, 48, 64, 80, 96, 112, 128, 192, 256, 576] {
            for family in FAMILIES {
                let spec = LayerSpec { head_dim: d, kv_heads: 1, query_heads: 5, ..spec(family) };
                let mut bits = [Variant::Scalar, variant].map(|variant| {
                    let mut cache = new(spec, variant);
                    let n = TOKENS * usize::from(d);
                    cache.append(0, &numbers(1, n), &numbers(2, n), TOKENS as u64).unwrap();
                    let q = numbers(3, 7 * 5 * usize::from(d));
                    let mut out = vec![0.0; q.len()];
                    cache.attend(0, &q, 7, &mut out).unwrap();
                    let mut scores = vec![0.0; 5 * TOKENS];
                    cache.scores(0, &q[..5 * usize::from(d)], &mut scores).unwrap();
                    (dump(&cache), out.iter().chain(&scores).map(|x| x.to_bits()).collect::<Vec<_>>())
                });
                let other = std::mem::take(&mut bits[1]);
                assert!(bits[0].0 == other.0, "{}: pages of d {d}, {family:x?}", variant.name());
                assert!(bits[0].1 == other.1, "{}: outputs of d {d}, {family:x?}", variant.name());
            }
        }
    }
}

#[test]
fn a_dump_restores_and_a_spoilt_one_does_not() {
    for family in FAMILIES {
        let cache = filled(spec(family), TOKENS);
        let bytes = dump(&cache);
        let config = || Config::new(spec(family), 1, "{\"a\":1,\"b\":2}").unwrap();
        let mut restored = Cache::restore(config(), &bytes).unwrap();
        assert_eq!(dump(&restored), bytes);
        assert_eq!(attend(&mut restored, 2), attend(&mut filled(spec(family), TOKENS), 2));
        for at in (0..bytes.len()).step_by(97) {
            let mut spoilt = bytes.clone();
            spoilt[at] ^= 4;
            assert!(Cache::restore(config(), &spoilt).is_err(), "byte {at}");
        }
        assert_eq!(kind(Cache::restore(config(), &bytes[..bytes.len() - 64])), Kind::Page);
        let other = Config::new(spec(family), 1, "{\"a\":1,\"b\":3}").unwrap();
        let refused = Cache::restore(other, &bytes).err().unwrap();
        assert_eq!((refused.kind, refused.message.split(':').next()), (Kind::Identity, Some("b")));
    }
}

#[test]
fn truncation_is_exact_or_refused() {
    let family = FAMILIES[1];
    for n in 0..=TOKENS {
        let mut cache = filled(spec(family), TOKENS);
        match cache.truncate(n as u64) {
            Ok(()) => assert_eq!(dump(&cache), dump(&filled(spec(family), n)), "{n} tokens"),
            Err(error) => {
                assert_eq!(error.kind, Kind::Truncate);
                let near = error.message.rsplit_once("nearest allowed lengths: ").unwrap().1;
                for length in near.split(", ") {
                    filled(spec(family), TOKENS).truncate(length.parse().unwrap()).unwrap();
                }
                assert_eq!(dump(&cache), dump(&filled(spec(family), TOKENS)));
            }
        }
    }
}

#[test]
fn forks_go_on_apart_and_reset_is_new() {
    let mut cache = filled(spec(FAMILIES[1]), 60);
    let mut fork = cache.fork().unwrap();
    append(&mut fork, 60, TOKENS);
    assert_eq!(dump(&cache), dump(&filled(spec(FAMILIES[1]), 60)));
    assert_eq!(dump(&fork), dump(&filled(spec(FAMILIES[1]), TOKENS)));
    cache.reset();
    assert_eq!(dump(&cache), dump(&new(spec(FAMILIES[1]), Variant::Scalar)));
}

#[test]
fn what_was_retired_is_refused() {
    let mut cache = filled(LayerSpec { span: 24, ..spec(FAMILIES[1]) }, 88);
    append(&mut cache, 88, 89);
    let q = numbers(3, 40 * 4 * 48);
    let mut out = vec![0.0; q.len()];
    assert_eq!(kind(cache.attend(0, &q, 40, &mut out)), Kind::Span);
    assert_eq!(attend(&mut cache, 1).len(), 4 * 48);
}

#[test]
fn bad_input_changes_nothing() {
    let mut cache = filled(spec(FAMILIES[1]), 40);
    let before = dump(&cache);
    let mut keys = numbers(1, 2 * WIDTH);
    let values = keys.clone();
    for bad in [f32::NAN, f32::INFINITY, 65505.0] {
        keys[WIDTH + 50] = bad;
        let place = cache.append(0, &keys, &values, 2).err().unwrap().place.unwrap();
        assert_eq!((place.token, place.head, place.channel), (1, 1, 2));
    }
    assert_eq!(kind(cache.append(1, &values, &values, 2)), Kind::Argument);
    assert_eq!(kind(cache.append(0, &values, &values, 3)), Kind::Argument);
    assert_eq!(kind(cache.attend(0, &[0.0; 41 * 4 * 48], 41, &mut [0.0; 41 * 4 * 48])), Kind::State);
    assert_eq!(dump(&cache), before);
    assert_eq!(
        kind(Config::new(LayerSpec { head_dim: 40, ..spec(FAMILIES[1]) }, 1, "").and_then(Cache::new)),
        Kind::Spec
    );
}

#[test]
fn the_bill_adds_up() {
    let mut cache = filled(spec(FAMILIES[3]), TOKENS);
    attend(&mut cache, 3);
    let stats = cache.stats();
    let parts = [stats.codes, stats.scales, stats.means, stats.headers, stats.residual, stats.sinks, stats.scratch];
    assert_eq!(parts.iter().sum::<u64>() + stats.staging + stats.reserved, stats.allocated);
    assert_eq!((stats.pages_encoded, stats.ran), (4, 1));
}
