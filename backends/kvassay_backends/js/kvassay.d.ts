export type Variant = "relaxed" | "simd128" | "scalar";
export type Status = "ready" | "unsupported" | "broken" | "not-built";
export type Floats = Float32Array | Block;
export type TypedArrayType<T extends ArrayBufferView> = {
  new (buffer: ArrayBufferLike, offset?: number, count?: number): T;
  readonly BYTES_PER_ELEMENT: number;
};

/** Best first. */
export const VARIANTS: readonly Variant[];

export interface State {
  status: Status;
  reason: string;
}

/** What the engine has: simd128, relaxed. A feature that gives wrong results is "broken". */
export function features(): Record<"simd128" | "relaxed", State>;

/** The engine's relaxed dot of i8[16] and i7[16] added to i32[4]. Raises where it has none. */
export function relaxedDot(): (a: ArrayLike<number>, b: ArrayLike<number>, c: ArrayLike<number>) => Int32Array;
/** What it must give for our operands. */
export function exactDot(a: number[], b: number[], c: number[]): number[];

export interface LoadOptions {
  /** The folder that holds kvassay-VARIANT.wasm (default: wasm/ beside the host), or a source a variant. */
  modules?: string | URL | Partial<Record<Variant, string | URL | BufferSource | WebAssembly.Module>>;
  /** Exactly this one, never another. Default: the fastest that runs and self-tests right. */
  variant?: Variant;
  /** Cap of linear memory in bytes. Default: 4 GiB. */
  memoryLimit?: number;
}

/** Raises UnavailableError, with the state of each variant in `report`. */
export function load(options?: LoadOptions): Promise<Library>;

/** A spec as plain data: what Spec.to_dict() gives in Python. Fields that are left out have its defaults. */
export interface Spec {
  layers: number;
  kv_heads: number;
  query_heads: number;
  head_dim: number;
  keys?: string;
  values?: string;
  window?: number;
  sinks?: number;
  span?: number | null;
  page_tokens?: number;
  key_centre?: "none" | "frozen" | "page";
  value_centre?: "none" | "frozen";
  scale?: "u8" | "u8log" | "fp16";
  rounds?: 1 | 2;
  /** Above 2^53: a bigint, or its decimal digits as text. */
  seed?: number | bigint | string;
  softmax_scale?: number | null;
  /** A whole `base` is written as an integer in the identity. */
  rope?: { base: number; dims: number; order?: string; scaling?: string } | null;
  layer_overrides?: Record<number, Partial<Spec>>;
  identity?: Partial<
    Record<"model" | "tokenizer" | "template" | "adapter" | "tokens" | "runtime", string>
  > | null;
}

/** Named specs without a shape: fp16, turbo, turbo-qjl, kivi. */
export const PRESETS: Record<string, Partial<Spec>>;
/** The spec of a preset with a shape; any field in `shape` overrides the preset's. Raises SpecError. */
export function preset(name: string, shape: Partial<Spec>): Spec;
/** Canonical JSON of what identifies a cache, byte for byte as Python writes it. */
export function identityText(spec: Spec): string;

export interface MemoryStats {
  /** Size of linear memory; it never shrinks. */
  bytes: number;
  pages: number;
  growths: number;
  /** Bytes in blocks now, and at most so far. */
  used: number;
  highWater: number;
  cap: number;
  /** Bytes still to be had, growth up to the cap included; not all need be in one piece. */
  left: number;
}

/** One instance of a module. */
export interface Library {
  readonly variant: Variant;
  readonly variants: readonly string[];
  /** Promises the numeric contract bit for bit. */
  readonly exact: boolean;
  readonly buildId: string;
  /** SHA-256 of the module that was loaded; "" if a compiled WebAssembly.Module was given. */
  readonly digest: string;
  /** State of every variant that was tried, in order; the last one is this library. */
  readonly report: readonly (State & { variant: Variant })[];
  /** The functions of the instance, for those that this host does not wrap. */
  readonly exports: WebAssembly.Exports;

  supports(spec: Spec): { ok: boolean; reason: string };
  prepare(spec: Spec, options?: { identityText?: string }): Cache;
  restore(spec: Spec, dump: Uint8Array, options?: { identityText?: string }): Cache;

  /** Memory of the module, aligned to 64. Raises CacheMemoryError at the cap. */
  allocate(bytes: number): Block;
  /** Grows now, so that `bytes` in one piece can be had later without growth. */
  reserve(bytes: number): void;
  memoryStats(): MemoryStats;

  /** Calls any exported function; a trap becomes ModuleError and ends the use of this library. */
  raw(name: string, ...args: (number | bigint)[]): number | bigint | undefined;
  /** Calls one that returns a KV_ code and takes a kv_error last, which is added; raises its error. */
  call(name: string, ...args: (number | bigint)[]): void;
  /** Forgets the instance; its caches, blocks and views raise from now on. */
  close(): void;
}

/** A range of linear memory. Growth does not harm it: it hands out arrays only for the moment. */
export interface Block {
  readonly bytes: number;
  /** For an argument of an exported function; raises if the block was freed. */
  readonly address: number;
  /** A part; it dies with the whole. */
  slice(offset: number, bytes?: number): Block;
  write(source: ArrayBufferView, offset?: number): void;
  /** A copy. */
  read<T extends ArrayBufferView>(type: TypedArrayType<T>, offset?: number, count?: number): T;
  /** The bytes themselves, without a copy. */
  view<T extends ArrayBufferView>(type: TypedArrayType<T>, offset?: number, count?: number): View<T>;
  free(): void;
}

/** A typed array in linear memory that raises StaleViewError once growth or `free` took it away. */
export interface View<T extends ArrayBufferView> {
  readonly array: T;
}

export interface CacheStats {
  parts: Record<
    | "codes" | "scales" | "means" | "headers" | "residual"
    | "sinks" | "scratch" | "staging" | "reserved",
    number
  >;
  allocated: number;
  peak_allocated: number;
  allocations: number;
  pages_encoded: number;
  pages_scanned: number;
  /** Variants whose kernels executed. */
  ran: string[];
}

/** One sequence. Operations that raise change nothing. Blocks are read and written in place. */
export interface Cache {
  readonly spec: Spec;
  readonly identityText: string;
  readonly length: number;
  readonly lengths: number[];
  readonly closed: boolean;
  layerLength(layer: number): number;
  /** Keys after RoPE and values, both [tokens][kv_heads][head_dim]. */
  append(layer: number, keys: Floats, values: Floats): void;
  /** q [n][query_heads][head_dim], causal over the last n tokens; the same shape out. */
  attend(layer: number, q: Floats): Float32Array;
  attend<T extends Floats>(layer: number, q: Floats, out: T): T;
  /** q [query_heads][head_dim]; [query_heads][tokens] out, -Infinity where not attended. */
  scores(layer: number, q: Floats): Float32Array;
  scores<T extends Floats>(layer: number, q: Floats, out: T): T;
  truncate(n: number): void;
  fork(): Cache;
  reset(): void;
  dump(): Uint8Array;
  pages(layer: number): Uint8Array[];
  stats(): CacheStats;
  close(): void;
}

/** Base of all errors raised on purpose. */
export class KvassayError extends Error {}
export class InputError extends KvassayError {}
export class SpecError extends KvassayError {}
export class UnsupportedError extends KvassayError {}
export class UnavailableError extends KvassayError {
  report?: (State & { variant: Variant })[];
}
/** The module is not of this interface, or broke it; do not use it further. */
export class ModuleError extends KvassayError {}
export class StateError extends KvassayError {}
export class StaleViewError extends StateError {}
export class SpanError extends StateError {}
export class PageError extends KvassayError {}
export class NonFiniteError extends InputError {
  layer: number;
  token: number;
  head: number;
  channel: number;
}
export class TruncateError extends StateError {
  /** Lengths near by that are allowed. */
  allowed: number[];
}
export class IdentityError extends KvassayError {
  /** The first differing field. */
  field: string;
}
export class CacheMemoryError extends KvassayError {
  /** Bytes asked for, and bytes still to be had. */
  asked: number;
  left: number;
}
