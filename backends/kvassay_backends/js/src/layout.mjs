// Structs of kvassay.h as wasm32 lays them out: natural alignment, pointers of 4 bytes.

const SIZES = { u8: 1, u16: 2, u32: 4, i32: 4, f32: 4, pointer: 4, u64: 8, i64: 8 };

const READERS = {
  u8: (view, at) => view.getUint8(at),
  u16: (view, at) => view.getUint16(at, true),
  u32: (view, at) => view.getUint32(at, true),
  i32: (view, at) => view.getInt32(at, true),
  f32: (view, at) => view.getFloat32(at, true),
  pointer: (view, at) => view.getUint32(at, true),
  u64: (view, at) => Number(view.getBigUint64(at, true)),
  i64: (view, at) => Number(view.getBigInt64(at, true)),
};

const WRITERS = {
  u8: (view, at, x) => view.setUint8(at, x),
  u16: (view, at, x) => view.setUint16(at, x, true),
  u32: (view, at, x) => view.setUint32(at, x, true),
  i32: (view, at, x) => view.setInt32(at, x, true),
  f32: (view, at, x) => view.setFloat32(at, x, true),
  pointer: (view, at, x) => view.setUint32(at, x, true),
  u64: (view, at, x) => view.setBigUint64(at, BigInt(x), true),
  i64: (view, at, x) => view.setBigInt64(at, BigInt(x), true),
};

/** A struct from its fields in order: `name: type`, or `name: [type, count]` for an array. */
class Struct {
  constructor(fields) {
    this.fields = {};
    let end = 0;
    let alignment = 1;
    for (const [name, kind] of Object.entries(fields)) {
      const [type, count] = Array.isArray(kind) ? kind : [kind, 1];
      const size = SIZES[type];
      const offset = Math.ceil(end / size) * size;
      this.fields[name] = { type, offset, count };
      end = offset + size * count;
      alignment = Math.max(alignment, size);
    }
    this.bytes = Math.ceil(end / alignment) * alignment;
  }

  /** Scalar fields of the struct that starts at `at` of a DataView; u64 as a number. */
  read(view, at) {
    const out = {};
    for (const [name, { type, offset, count }] of Object.entries(this.fields))
      if (count === 1) out[name] = READERS[type](view, at + offset);
    return out;
  }

  /** Writes these fields; the others are left. */
  write(view, at, values) {
    for (const [name, value] of Object.entries(values)) {
      const { type, offset } = this.fields[name];
      WRITERS[type](view, at + offset, value);
    }
  }
}

export const kv_error = new Struct({
  code: "i32", layer: "i32", head: "i32", channel: "i32", token: "i64", message: ["u8", 232],
});

export const kv_info = new Struct({
  abi_version: "u32", contract_version: "u32", page_version: "u32", dump_version: "u32",
  flags: "u32", variant_count: "u32", name: "pointer", build_id: "pointer",
});

export const kv_layer_spec = new Struct({
  kv_heads: "u16", query_heads: "u16", head_dim: "u16", page_tokens: "u16",
  key_mode: "u8", value_mode: "u8", key_centre: "u8", value_centre: "u8",
  scale_kind: "u8", rounds: "u8", reserved: "u16",
  window: "u32", sinks: "u32", span: "u32", softmax_scale: "f32", seed: "u64",
});

export const kv_cache_config = new Struct({
  layers: "u32", threads: "u32", specs: "pointer", variant: "pointer",
  identity: "pointer", identity_bytes: "u64",
  model: "u64", tokenizer: "u64", runtime: "u64", allocator: "pointer",
});

export const kv_stats = new Struct({
  codes: "u64", scales: "u64", means: "u64", headers: "u64", residual: "u64", sinks: "u64",
  scratch: "u64", staging: "u64", reserved: "u64", allocated: "u64", peak_allocated: "u64",
  allocations: "u64", pages_encoded: "u64", pages_scanned: "u64", variant: "u32", ran: "u32",
});

/** Versions that a module must have, and what it must offer. */
export const VERSIONS = { abi_version: 1, contract_version: 1, page_version: 2, dump_version: 1 };
export const FLAG_EXACT = 1;
export const FLAG_CACHE = 2;
export const CODES = {
  ok: 0, argument: 1, spec: 2, variant: 3, value: 4, memory: 5,
  page: 6, identity: 7, truncate: 8, span: 9, state: 10,
};
