// One instance of a module: its functions called with typed errors, and the memory it owns.
import { Cache } from "./cache.mjs";
import { failure } from "./failures.mjs";
import {
  CODES, FLAG_CACHE, FLAG_EXACT, VERSIONS, kv_cache_config, kv_error, kv_info, kv_layer_spec,
} from "./layout.mjs";
import { LinearMemory } from "./memory.mjs";
import { InputError, ModuleError, StateError } from "./errors.mjs";
import { complete, identityHashes, identityText, layerFields } from "./spec.mjs";

const FUNCTIONS = [
  "kv_get_info", "kv_variant_name", "kv_variant_runs", "kv_supports",
  "kv_plan_bytes", "kv_plan_init", "kv_plan_page_bytes",
  "kv_cache_create", "kv_cache_destroy", "kv_cache_append", "kv_cache_attend", "kv_cache_scores",
  "kv_cache_length", "kv_cache_page_count", "kv_cache_page", "kv_cache_truncate", "kv_cache_fork",
  "kv_cache_reset", "kv_cache_dump_bytes", "kv_cache_dump", "kv_cache_restore", "kv_cache_get_stats",
  "kv_wasm_alloc", "kv_wasm_free", "kv_wasm_reserve", "kv_wasm_set_cap", "kv_wasm_cap",
  "kv_wasm_pages", "kv_wasm_growths", "kv_wasm_used", "kv_wasm_high_water", "kv_wasm_refused",
  "kv_wasm_left",
];
/** Results of calls: a pointer, a u64, a kv_stats. */
const OUT_BYTES = 256;
/** Staging blocks above this are given back after the call that needed them. */
const STAGING_KEPT = 1 << 20;

export class Library {
  /** `exports` of an instance; `about` is kept: variant, digest, report. Raises ModuleError. */
  constructor(exports, about = {}) {
    for (const name of FUNCTIONS)
      if (typeof exports[name] !== "function")
        throw new ModuleError(`the module does not export ${name}; build it from kvassay's sources`);
    this.exports = exports;
    this.memory = new LinearMemory(exports);
    this.fault = "";
    this.caches = new Set();
    this.staging = new Map();
    exports._initialize?.();
    this.#readInfo();
    Object.assign(this, { digest: "", report: [] }, about);
    this.errorBlock = this.memory.allocate(kv_error.bytes);
    this.outBlock = this.memory.allocate(OUT_BYTES);
  }

  #readInfo() {
    const view = this.memory.dataView(this.raw("kv_get_info") >>> 0, kv_info.bytes, "kv_get_info");
    const info = kv_info.read(view, 0);
    for (const [field, expected] of Object.entries(VERSIONS))
      if (info[field] !== expected)
        throw new ModuleError(
          `the module's ${field} is ${info[field]}, this host needs ${expected}; take both from one release`,
        );
    if (!(info.flags & FLAG_CACHE)) throw new ModuleError("the module offers no kv_cache functions");
    this.exact = Boolean(info.flags & FLAG_EXACT);
    this.buildId = this.memory.text(info.build_id, "build id");
    this.variants = Array.from({ length: info.variant_count }, (_, i) =>
      this.memory.text(this.raw("kv_variant_name", i) >>> 0, `name of variant ${i}`),
    );
    this.variant = this.variants.at(-1);
  }

  /** Calls an exported function; whatever it throws means that the instance is lost. */
  raw(name, ...args) {
    this.requireOpen();
    try {
      return this.exports[name](...args);
    } catch (error) {
      this.fault = `${name} ended with ${error.name}: ${error.message}`;
      throw new ModuleError(`${this.fault}; load the module again`);
    }
  }

  /** Calls a function that returns a KV_ code and takes a kv_error last. */
  call(name, ...args) {
    const code = this.raw(name, ...args, this.errorBlock.address);
    if (code !== CODES.ok) throw failure(this, name, code);
  }

  requireOpen() {
    if (this.memory.closed) throw new StateError("the library is closed; load it again");
    if (this.fault) throw new ModuleError(`${this.fault}; load the module again`);
  }

  /** Whether the module executes a spec: { ok, reason }. Raises SpecError for one that is no spec. */
  supports(spec) {
    const full = complete(spec);
    const block = this.memory.allocate(kv_layer_spec.bytes);
    try {
      for (let layer = 0; layer < full.layers; layer++) {
        this.#writeLayer(block, 0, full, layer);
        const code = this.raw("kv_supports", block.address, this.errorBlock.address);
        if (code === CODES.ok) continue;
        return { ok: false, reason: `layer ${layer}: ${failure(this, "kv_supports", code).message}` };
      }
      return { ok: true, reason: "" };
    } finally {
      this.release(block);
    }
  }

  /** An empty cache. `identityText` replaces the text made from the spec. */
  prepare(spec, { identityText: text = identityText(spec) } = {}) {
    const full = complete(spec);
    return this.#withConfig(full, text, (config) => {
      this.call("kv_cache_create", config, this.outBlock.address);
      return new Cache(this, full, text, this.outPointer("kv_cache_create"));
    });
  }

  /** A cache with the state of a dump of an equal spec. Raises IdentityError or PageError. */
  restore(spec, dump, { identityText: text = identityText(spec) } = {}) {
    const full = complete(spec);
    if (!(dump instanceof Uint8Array)) throw new InputError("restore: the dump is not a Uint8Array");
    const block = this.memory.allocate(dump.length);
    try {
      block.write(dump);
      return this.#withConfig(full, text, (config) => {
        const size = BigInt(dump.length);
        const code = this.raw(
          "kv_cache_restore", config, block.address, size, this.outBlock.address, this.errorBlock.address,
        );
        if (code !== CODES.ok) throw failure(this, "kv_cache_restore", code, { expected: text, dump });
        return new Cache(this, full, text, this.outPointer("kv_cache_restore"));
      });
    } finally {
      this.release(block);
    }
  }

  /** A block of linear memory of its own, aligned to 64: `block.free()` gives it back. */
  allocate(bytes) {
    this.requireOpen();
    return this.memory.allocate(bytes);
  }

  /** Makes sure that `bytes` in one piece can be had from now on without growth. */
  reserve(bytes) {
    if (!Number.isSafeInteger(bytes) || bytes < 0)
      throw new InputError(`reserve: ${bytes} is not a number of bytes; give an integer, 0 or more`);
    if (bytes > 0xffffffff || !this.raw("kv_wasm_reserve", bytes)) throw this.memory.refusal(bytes);
  }

  /** Sizes of linear memory and how often it grew. */
  memoryStats() {
    this.requireOpen();
    return this.memory.stats();
  }

  /** Closes every cache and forgets the instance; its memory is the engine's to collect. */
  close() {
    for (const cache of this.caches) cache.closed = true;
    this.caches.clear();
    this.memory.closed = true;
    this.memory.memory = null;
    this.exports = null;
  }

  /** A block of at least `bytes` for one purpose, used again by the next call. */
  stage(purpose, bytes) {
    const kept = this.staging.get(purpose);
    if (kept && kept.bytes >= bytes) return kept;
    this.staging.delete(purpose);
    if (kept) this.release(kept);
    const made = this.memory.allocate(Math.max(bytes, Math.min(2 * (kept?.bytes ?? 0), STAGING_KEPT)));
    this.staging.set(purpose, made);
    return made;
  }

  /** Gives large staging blocks back. */
  unstage() {
    for (const [purpose, block] of this.staging)
      if (block.bytes > STAGING_KEPT) {
        this.staging.delete(purpose);
        this.release(block);
      }
  }

  /** Frees a block, unless the instance is lost. */
  release(block) {
    if (!this.fault) block.free();
  }

  /** The u64 that the last call left. */
  outU64() {
    return Number(this.memory.dataView(this.outBlock.address, 8, "result").getBigUint64(0, true));
  }

  /** The pointer that the last call, of a function of that name, left. */
  outPointer(name) {
    const [pointer] = this.outBlock.read(Uint32Array, 0, 1);
    this.memory.check(pointer, 4, 4, name);
    return pointer;
  }

  #writeLayer(block, offset, full, layer) {
    const view = this.memory.dataView(block.address + offset, kv_layer_spec.bytes, "spec");
    kv_layer_spec.write(view, 0, layerFields(full, layer));
  }

  /** Runs `use` with the address of a kv_cache_config, which exists only for that call. */
  #withConfig(full, text, use) {
    const [identity, variant] = [text, `${this.variant}\0`].map((t) => new TextEncoder().encode(t));
    const at = kv_cache_config.bytes;
    const textAt = at + full.layers * kv_layer_spec.bytes;
    const block = this.memory.allocate(textAt + identity.length + variant.length);
    try {
      for (let layer = 0; layer < full.layers; layer++)
        this.#writeLayer(block, at + layer * kv_layer_spec.bytes, full, layer);
      block.write(identity, textAt);
      block.write(variant, textAt + identity.length);
      const address = block.address;
      kv_cache_config.write(this.memory.dataView(address, kv_cache_config.bytes, "config"), 0, {
        layers: full.layers,
        threads: 1,
        specs: address + at,
        variant: address + textAt + identity.length,
        identity: address + textAt,
        identity_bytes: identity.length,
        ...identityHashes(full),
        allocator: 0,
      });
      return use(address);
    } finally {
      this.release(block);
    }
  }
}
