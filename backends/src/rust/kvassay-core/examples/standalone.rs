//! A runtime in Rust that uses the cache without Python: appends, attends, dumps.
//!
//! `cargo run --release --example standalone -- FILE` writes the dump to FILE and prints one line a fact. The identity
//! text is what `kvassay.Spec(...).identity_text` gives for the same spec (docs/page-format.md, identity text), so
//! Python restores the file.

use kvassay_core::{Cache, Config, LayerSpec};

const LAYERS: usize = 2;
const TOKENS: u64 = 300;
const IDENTITY: &str = concat!(
    r#"{"head_dim":64,"identity":null,"key_centre":"page","keys":"turbo:3.5","kv_heads":2,"layer_overrides":{},"#,
    r#""layers":2,"page_tokens":64,"query_heads":4,"rope":null,"rounds":2,"scale":"u8","seed":0,"sinks":4,"#,
    r#""softmax_scale":0.125,"span":null,"value_centre":"none","values":"turbo:3","window":128}"#,
);

fn spec() -> LayerSpec {
    LayerSpec {
        kv_heads: 2,
        query_heads: 4,
        head_dim: 64,
        page_tokens: 64,
        key_mode: 0x17,
        value_mode: 0x16,
        key_centre: 2,
        value_centre: 0,
        scale_kind: 0,
        rounds: 2,
        window: 128,
        sinks: 4,
        span: 0,
        softmax_scale: 0.125,
        seed: 0,
    }
}

/// Number i of a sequence in [-1, 1), exact in binary16: what a model would compute.
fn number(i: u64) -> f32 {
    let mixed = (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 53;
    (mixed as f32 - 1024.0) / 1024.0
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args_os().nth(1).ok_or("usage: standalone FILE")?;
    let config = Config::new(spec(), LAYERS, IDENTITY)?;
    println!("variant {}", config.variant.name());
    let mut cache = Cache::new(config)?;

    // A prompt at once, then token by token, as a decoder does. A layer's keys come after RoPE.
    let width = 2 * 64;
    for (first, tokens) in std::iter::once((0, 200)).chain((200..TOKENS).map(|token| (token, 1))) {
        for layer in 0..LAYERS as u64 {
            let at = |token: u64| (layer * TOKENS + token) * width;
            let keys: Vec<_> = (at(first)..at(first + tokens)).map(number).collect();
            let values: Vec<_> = keys.iter().map(|key| -key).collect();
            cache.append(layer as usize, &keys, &values, tokens)?;
        }
    }

    let q: Vec<_> = (0..4 * 64).map(|i| number(1 << 40 | i)).collect();
    for layer in 0..LAYERS {
        let mut out = vec![0.0; q.len()];
        cache.attend(layer, &q, 1, &mut out)?;
        let bits: Vec<_> = out[..4].iter().map(|x| format!("{:08x}", x.to_bits())).collect();
        println!("layer {layer} attends {}", bits.join(" "));
    }

    let mut dump = vec![0; cache.dump_bytes() as usize];
    cache.dump(&mut dump)?;
    std::fs::write(&file, &dump)?;
    println!("{} bytes, {} held", dump.len(), cache.stats().allocated);
    Ok(())
}
