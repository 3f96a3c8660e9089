// One sequence: a kv_cache of a module (docs/lifecycle.md says what each operation does).
import { PIECE, checkFinite, roomFor } from "./append.mjs";
import { InputError, ModuleError, StateError } from "./errors.mjs";
import { kv_stats } from "./layout.mjs";
import { Block } from "./memory.mjs";
import { layerFields } from "./spec.mjs";

const PARTS = [
  "codes", "scales", "means", "headers", "residual", "sinks", "scratch", "staging", "reserved",
];

/** Floats are Float32Array, or Blocks of linear memory that hold them: those are used where they are. */
export class Cache {
  constructor(library, full, text, pointer) {
    this.library = library;
    this.spec = full;
    this.identityText = text;
    this.pointer = pointer;
    this.closed = false;
    this.spans = Array.from({ length: full.layers }, (_, layer) => layerFields(full, layer).span);
    library.caches.add(this);
  }

  /** Appends tokens: keys (after RoPE) and values, both [tokens][kv_heads][head_dim]. */
  append(layer, keys, values) {
    const handle = this.#open();
    this.#checkLayer(layer);
    const token = this.spec.kv_heads * this.spec.head_dim;
    const tokens = floatCount("keys", keys) / token;
    if (!Number.isInteger(tokens) || floatCount("values", values) !== tokens * token)
      throw new InputError(
        `append: ${floatCount("keys", keys)} floats of keys and ${floatCount("values", values)} of values are not ` +
          `equal and whole tokens of ${token} floats ([tokens][kv_heads][head_dim])`,
      );
    const step = Math.max(1, Math.floor(PIECE / (4 * token)));
    const whole = keys instanceof Block || values instanceof Block || this.spans[layer] > 0;
    if (whole || tokens <= step) {
      if (tokens > 0) this.#appendPiece(handle, layer, keys, values, tokens);
      return;
    }
    // All that can be refused is refused before the first piece.
    checkFinite(this.spec, layer, "key", keys);
    checkFinite(this.spec, layer, "value", values);
    this.library.reserve(4 * PIECE + roomFor(this.library, this.spec, layer, this.layerLength(layer), tokens));
    for (let start = 0; start < tokens; start += step) {
      const count = Math.min(step, tokens - start);
      const [k, v] = [keys, values].map((rows) => rows.subarray(start * token, (start + count) * token));
      this.#appendPiece(handle, layer, k, v, count);
    }
  }

  #appendPiece(handle, layer, keys, values, tokens) {
    this.#staged({ keys, values }, (at) =>
      this.library.call("kv_cache_append", handle, layer, at.keys, at.values, BigInt(tokens)),
    );
  }

  /** Attention of q [n][query_heads][head_dim], causal over the last n tokens; the same shape out. */
  attend(layer, q, out) {
    const handle = this.#open();
    this.#checkLayer(layer);
    const token = this.spec.query_heads * this.spec.head_dim;
    const n = floatCount("q", q) / token;
    if (!Number.isInteger(n) || n < 1)
      throw new InputError(`attend: ${floatCount("q", q)} floats are not whole queries of ${token} floats`);
    return this.#into(out, n * token, { q }, (at) =>
      this.library.call("kv_cache_attend", handle, layer, at.q, n, at.out),
    );
  }

  /** Logits before softmax of q [query_heads][head_dim]: [query_heads][tokens], -Infinity where not attended. */
  scores(layer, q, out) {
    const handle = this.#open();
    this.#checkLayer(layer);
    const token = this.spec.query_heads * this.spec.head_dim;
    if (floatCount("q", q) !== token)
      throw new InputError(`scores: ${floatCount("q", q)} floats are not one query of ${token} floats`);
    const floats = this.spec.query_heads * this.layerLength(layer);
    return this.#into(out, floats, { q }, (at) =>
      this.library.call("kv_cache_scores", handle, layer, at.q, at.out, BigInt(floats)),
    );
  }

  /** Tokens held by every layer. */
  get length() {
    return Math.min(...this.lengths);
  }

  /** Tokens appended, per layer (after truncation; retired tokens count). */
  get lengths() {
    return Array.from({ length: this.spec.layers }, (_, layer) => this.layerLength(layer));
  }

  layerLength(layer) {
    const handle = this.#open();
    this.#checkLayer(layer);
    const length = Number(this.library.raw("kv_cache_length", handle, layer));
    if (!Number.isSafeInteger(length) || length < 0) throw new ModuleError(`kv_cache_length: ${length}`);
    return length;
  }

  /** Live sealed pages in order, as copies in the documented format. */
  pages(layer) {
    const handle = this.#open();
    this.#checkLayer(layer);
    const { library } = this;
    const count = library.raw("kv_cache_page_count", handle, layer) >>> 0;
    const out = library.outBlock.address;
    const pages = [];
    for (let index = 0; index < count; index++) {
      library.call("kv_cache_page", handle, layer, index, out, out + 8);
      const view = library.memory.dataView(out, 16, "kv_cache_page");
      const [at, bytes] = [view.getUint32(0, true), Number(view.getBigUint64(8, true))];
      const where = `kv_cache_page: page ${index} of layer ${layer}`;
      pages.push(library.memory.array(Uint8Array, at, bytes, where).slice());
    }
    return pages;
  }

  /** Keeps the first n tokens of every layer, or changes nothing and raises TruncateError or SpanError. */
  truncate(n) {
    const handle = this.#open();
    if (!Number.isSafeInteger(n) || n < 0)
      throw new InputError(`truncate: ${n} is not a number of tokens; give an integer, 0 or more`);
    this.library.call("kv_cache_truncate", handle, BigInt(n));
  }

  /** A second cache with equal state, sharing sealed pages. */
  fork() {
    const { library } = this;
    library.call("kv_cache_fork", this.#open(), library.outBlock.address);
    return new Cache(library, this.spec, this.identityText, library.outPointer("kv_cache_fork"));
  }

  /** Back to empty, byte for byte. */
  reset() {
    this.library.call("kv_cache_reset", this.#open());
  }

  /** The cache as one dump (docs/page-format.md). */
  dump() {
    const handle = this.#open();
    const { library } = this;
    library.call("kv_cache_dump_bytes", handle, library.outBlock.address);
    const bytes = library.outU64();
    if (bytes > 0xffffffff) throw new ModuleError(`kv_cache_dump_bytes: ${bytes} bytes exceed wasm32`);
    const block = library.allocate(bytes);
    try {
      library.call("kv_cache_dump", handle, block.address, BigInt(bytes));
      return block.read(Uint8Array);
    } finally {
      library.release(block);
    }
  }

  /** Bytes held by part, `allocated`, `peak_allocated`, pages encoded and scanned, and variants that ran. */
  stats() {
    const handle = this.#open();
    const { library } = this;
    library.raw("kv_cache_get_stats", handle, library.outBlock.address);
    const view = library.memory.dataView(library.outBlock.address, kv_stats.bytes, "kv_stats");
    const stats = kv_stats.read(view, 0);
    const parts = Object.fromEntries(PARTS.map((name) => [name, stats[name]]));
    return { ...stats, parts, ran: library.variants.filter((_, i) => (stats.ran >>> i) & 1) };
  }

  /** Releases the memory; later calls raise StateError. Closing twice is harmless. */
  close() {
    if (this.closed) return;
    this.closed = true;
    this.library.caches.delete(this);
    if (!this.library.fault) this.library.raw("kv_cache_destroy", this.pointer);
  }

  #open() {
    if (this.closed) throw new StateError("the cache is closed; prepare or restore another one");
    this.library.requireOpen();
    return this.pointer;
  }

  #checkLayer(layer) {
    if (!Number.isInteger(layer) || layer < 0 || layer >= this.spec.layers)
      throw new InputError(`layer: ${layer} is not one of the ${this.spec.layers} layers, counted from 0`);
  }

  /** Calls `use` with addresses of inputs: blocks where they are, arrays after one bulk copy. */
  #staged(inputs, use) {
    const at = {};
    // All staging first: it may grow memory, but addresses stay right.
    for (const [name, source] of Object.entries(inputs)) {
      if (source instanceof Block) at[name] = this.#addressOf(name, source);
      else {
        const block = this.library.stage(name, source.byteLength);
        block.write(source);
        at[name] = block.address;
      }
    }
    try {
      return use(at);
    } finally {
      if (!this.library.fault) this.library.unstage();
    }
  }

  #addressOf(name, block) {
    if (block.isIn(this.library.memory)) return block.address;
    throw new InputError(`${name}: a Block of another library; allocate it with the one of this cache`);
  }

  #into(out, floats, inputs, use) {
    if (out !== undefined && floatCount("out", out) !== floats)
      throw new InputError(`out: ${floatCount("out", out)} floats, ${floats} are needed`);
    if (out instanceof Block) {
      const address = this.#addressOf("out", out);
      this.#staged(inputs, (at) => use({ ...at, out: address }));
      return out;
    }
    const result = this.library.stage("out", 4 * Math.max(floats, 1));
    return this.#staged(inputs, (at) => {
      use({ ...at, out: result.address });
      const copy = result.read(Float32Array, 0, floats);
      if (!out) return copy;
      out.set(copy);
      return out;
    });
  }
}

function floatCount(name, source) {
  if (source instanceof Float32Array) return source.length;
  if (source instanceof Block && source.bytes % 4 === 0 && source.address % 4 === 0) return source.bytes / 4;
  throw new InputError(`${name}: neither a Float32Array nor a Block of whole, aligned floats`);
}
