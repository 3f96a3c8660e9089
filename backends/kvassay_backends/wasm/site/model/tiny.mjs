// The tiny models: random weights from a pinned generator, made in linear memory, the same bits as in Python.

import { digest, layerTensors } from "./shape.mjs";
import { ByteTokenizer } from "./tokenizer.mjs";

const KINDS = { gqa: [6, 2, 1], mha: [4, 4, 2], mqa: [4, 1, 3] }; // query heads, KV heads, seed
const SHAPE = { layers: 2, head_dim: 64, hidden: 256, ffn: 512, vocab: 256, context: 4096, rope_base: 10000, eps: 1e-5 };
const GAINS = { query: 1.25, key: 1.25, value: 2, attention_output: 1, gate: 1, up: 1, down: 1 };
const NORM_SPREAD = 0.5;
const LOGIT_GAIN = 2;
const FLOAT = 4;

/** Hands out weights one after the other, each array from a stream of its own. */
class Generator {
  constructor(library, block, seed) {
    Object.assign(this, { library, block, seed: BigInt(seed) << 48n, arrays: 0n, used: 0 });
  }

  uniform(rows, columns, halfWidth, offset = 0) {
    const pointer = this.block.address + this.used;
    this.arrays += 1n;
    this.library.raw("kvd_uniform", this.seed + (this.arrays << 32n), rows * columns, halfWidth, offset, pointer);
    this.used += rows * columns * FLOAT;
    return { type: 0, pointer, rows, columns };
  }

  matrix(rows, columns, gain) {
    return this.uniform(rows, columns, gain * Math.sqrt(3 / columns));
  }

  norm(columns) {
    return this.uniform(1, columns, NORM_SPREAD, 1);
  }
}

function floats(config) {
  const layer = layerTensors(config).reduce((sum, [, , rows, columns]) => sum + rows * columns, 0);
  return config.layers * layer + 2 * config.vocab * config.hidden + config.hidden;
}

/** @param {"gqa"|"mha"|"mqa"} kind */
export async function tinyModel(library, kind) {
  const [query_heads, kv_heads, seed] = KINDS[kind];
  const config = { name: `tiny-${kind}`, query_heads, kv_heads, ...SHAPE };
  const block = library.allocate(floats(config) * FLOAT);
  const source = new Generator(library, block, seed);
  const { hidden, vocab } = config;
  const embedding = source.uniform(vocab, hidden, Math.sqrt(3));
  const tensors = layerTensors(config);
  const layers = Array.from({ length: config.layers }, () =>
    Object.fromEntries(
      tensors.map(([field, , rows, columns]) => [
        field,
        rows === 1 ? source.norm(columns) : source.matrix(rows, columns, GAINS[field]),
      ]),
    ),
  );
  const weights = { embedding, layers, norm: source.norm(hidden), output: source.matrix(vocab, hidden, LOGIT_GAIN) };
  config.model_hash = await digest(block.read(Uint8Array));
  config.tokenizer_hash = config.template_hash = await digest(new Uint8Array());
  return { config, weights, block, tokenizer: new ByteTokenizer() };
}
