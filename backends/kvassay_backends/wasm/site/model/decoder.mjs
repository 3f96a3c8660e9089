// The forward pass: the module's kernels, layer by layer, with a cache of the same linear memory as the attention.

import { ModelError } from "./errors.mjs";

const FLOAT = 4;
const ACTIVATION = 72; // bytes of kvd_activation: 32 values
const BATCH = 16; // tokens at a time while a prompt is read

export class Decoder {
  /**
   * @param library a module with the decoder's kernels
   * @param model from tiny.mjs or file.mjs, in the memory of that module
   */
  constructor(library, model) {
    Object.assign(this, { library, model });
    const { hidden, ffn, query_heads, kv_heads, head_dim, vocab } = model.config;
    const queries = query_heads * head_dim;
    const kv = kv_heads * head_dim;
    this.token = { query: queries * FLOAT, kv: kv * FLOAT };
    const widest = Math.max(hidden, queries, ffn);
    const sizes = { x: hidden, normed: hidden, q: queries, k: kv, v: kv, out: queries, gate: ffn, up: ffn };
    this.blocks = {
      activations: library.allocate((BATCH * ACTIVATION * widest) / 32),
      logits: library.allocate(vocab * FLOAT),
      angles: library.allocate(BATCH * head_dim * FLOAT),
    };
    for (const [name, floats] of Object.entries(sizes)) this.blocks[name] = library.allocate(BATCH * floats * FLOAT);
  }

  free() {
    for (const block of Object.values(this.blocks)) block.free();
  }

  /**
   * Appends tokens to the cache and returns the logits after the last of them, Float32Array (vocab).
   * @param {number[]} tokens
   * @param {(done: number) => Promise<void> | void} step called after each batch
   */
  async forward(tokens, cache, step = () => {}) {
    const { vocab, context } = this.model.config;
    if (tokens.length === 0) throw new ModelError("no tokens to read");
    const wrong = tokens.findIndex((id) => !(Number.isInteger(id) && id >= 0 && id < vocab));
    if (wrong >= 0) throw new ModelError(`token ${tokens[wrong]} at ${wrong} is not in the vocabulary of ${vocab}`);
    if (cache.length + tokens.length > context) {
      throw new ModelError(`${cache.length + tokens.length} tokens are more than the model's context of ${context}`);
    }
    for (let at = 0; at < tokens.length; at += BATCH) {
      const batch = tokens.slice(at, at + BATCH);
      this.#layers(batch, cache);
      await step(at + batch.length);
    }
    return this.#logits((tokens.length - 1) % BATCH);
  }

  #at(name, offset = 0) {
    return this.blocks[name].address + offset;
  }

  #matmul(matrix, input, tokens, y) {
    const { type, pointer, rows, columns } = matrix;
    this.library.raw("kvd_matmul", type, pointer, rows, columns, this.#at(input), this.#at("activations"), tokens, y);
  }

  #activate(input, tokens, n) {
    this.library.raw("kvd_activate", this.#at(input), tokens, n, this.#at("activations"));
  }

  #norm(weight, tokens, input = this.#at("x")) {
    const { hidden, eps } = this.model.config;
    this.library.raw("kvd_rms_norm", input, weight.pointer, tokens, hidden, eps, this.#at("normed"));
    this.#activate("normed", tokens, hidden);
  }

  #layers(tokens, cache) {
    const { weights, config } = this.model;
    const { hidden, ffn, query_heads, head_dim } = config;
    const n = tokens.length;
    const { type, pointer } = weights.embedding;
    tokens.forEach((id, t) =>
      this.library.raw("kvd_embed", type, pointer, id, hidden, this.#at("x", t * hidden * FLOAT)),
    );
    this.#turn(cache.length, n);
    for (const [number, layer] of weights.layers.entries()) {
      this.#norm(layer.attention_norm, n);
      this.#matmul(layer.query, "normed", n, this.#at("q"));
      this.#matmul(layer.key, "normed", n, this.#at("k"));
      this.#matmul(layer.value, "normed", n, this.#at("v"));
      this.#attend(number, n, cache);
      this.#activate("out", n, query_heads * head_dim);
      this.#matmul(layer.attention_output, "out", n, this.#at("normed"));
      this.library.raw("kvd_add", this.#at("x"), this.#at("normed"), n * hidden);
      this.#norm(layer.ffn_norm, n);
      this.#matmul(layer.gate, "normed", n, this.#at("gate"));
      this.#matmul(layer.up, "normed", n, this.#at("up"));
      this.library.raw("kvd_swiglu", this.#at("gate"), this.#at("up"), n * ffn);
      this.#activate("gate", n, ffn);
      this.#matmul(layer.down, "gate", n, this.#at("normed"));
      this.library.raw("kvd_add", this.#at("x"), this.#at("normed"), n * hidden);
    }
  }

  /** Cosines and sines of the RoPE angles from `start` on (Su et al. 2021). */
  #turn(start, n) {
    const { head_dim, rope_base } = this.model.config;
    const half = head_dim / 2;
    const angles = new Float32Array(n * head_dim);
    for (let t = 0; t < n; t++) {
      for (let i = 0; i < half; i++) {
        const angle = (start + t) * rope_base ** ((-2 * i) / head_dim);
        angles[t * head_dim + i] = Math.cos(angle);
        angles[t * head_dim + half + i] = Math.sin(angle);
      }
    }
    this.blocks.angles.write(angles);
  }

  /** Token by token, so that no query meets pages that were sealed after it. */
  #attend(layer, n, cache) {
    const { query_heads, kv_heads, head_dim } = this.model.config;
    const { query, kv } = this.token;
    const half = (head_dim / 2) * FLOAT;
    for (let t = 0; t < n; t++) {
      const [q, k, v, out] = [["q", query], ["k", kv], ["v", kv], ["out", query]].map(([name, bytes]) =>
        this.blocks[name].slice(t * bytes, bytes),
      );
      const cosines = this.#at("angles", t * head_dim * FLOAT);
      this.library.raw("kvd_rope", q.address, query_heads, head_dim, cosines, cosines + half);
      this.library.raw("kvd_rope", k.address, kv_heads, head_dim, cosines, cosines + half);
      cache.append(layer, k, v);
      cache.attend(layer, q, out);
    }
  }

  #logits(row) {
    const { hidden, vocab } = this.model.config;
    this.#norm(this.model.weights.norm, 1, this.#at("x", row * hidden * FLOAT));
    this.#matmul(this.model.weights.output, "normed", 1, this.#at("logits"));
    return this.blocks.logits.read(Float32Array, 0, vocab);
  }
}

/** The most likely token; ties go to the lower id. */
export function greedy(logits) {
  let best = 0;
  for (let id = 1; id < logits.length; id++) if (logits[id] > logits[best]) best = id;
  if (!Number.isFinite(logits[best])) throw new ModelError("the model's logits are not finite; it cannot go on");
  return best;
}
