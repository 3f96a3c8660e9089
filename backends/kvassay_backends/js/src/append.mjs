// A long append in pieces: linear memory never shrinks, so a prompt's float32 must not pass through it
// at once. Stored state does not depend on the pieces, but for a span, which retires at each append.
import { NonFiniteError } from "./errors.mjs";
import { kv_layer_spec } from "./layout.mjs";
import { layerFields } from "./spec.mjs";

/** Bytes of keys, and of values, staged at once. */
export const PIECE = 1 << 19;
const FP16_MAX = 65504;
/** What the module's allocator rounds to, and the sizes of a pointer and of an fp16 number. */
const GRAIN = 64;
const POINTER = 4;
const HALF = 2;

/** Refuses what the module would refuse, before the first piece is stored. */
export function checkFinite(spec, layer, stream, rows) {
  const at = rows.findIndex((x) => !(Math.abs(x) <= FP16_MAX));
  if (at < 0) return;
  const { head_dim, kv_heads } = spec;
  const channel = at % head_dim;
  const head = Math.floor(at / head_dim) % kv_heads;
  const token = Math.floor(at / head_dim / kv_heads);
  const found = Number.isNaN(rows[at]) ? "NaN" : Number.isFinite(rows[at]) ? "beyond 65504" : "infinite";
  throw new NonFiniteError(
    `append: ${stream} is ${found} at layer ${layer}, token ${token}, head ${head}, channel ${channel}; fp16 cannot hold it`,
    { layer, token, head, channel },
  );
}

/** Bytes that an append of `tokens` to `length` may take: pages, their index, wider fp16 stores. */
export function roomFor(library, spec, layer, length, tokens) {
  const { sinks, window, page_tokens, kv_heads, head_dim } = layerFields(spec, layer);
  const sealed = (count) => Math.max(0, Math.floor((count - sinks - window) / page_tokens));
  const last = sealed(length + tokens);
  const pages = (last - sealed(length)) * (pageBytes(library, spec, layer) + 2 * GRAIN);
  const index = 4 * POINTER * (last + 8); // it doubles, and the old one goes last
  const stores = 4 * (sinks + window + page_tokens + GRAIN) * kv_heads * head_dim * HALF;
  return pages + index + stores;
}

/** Bytes of one sealed page, asked of the module. */
function pageBytes(library, spec, layer) {
  const block = library.allocate(kv_layer_spec.bytes);
  try {
    const at = block.address;
    kv_layer_spec.write(library.memory.dataView(at, kv_layer_spec.bytes, "spec"), 0, layerFields(spec, layer));
    library.call("kv_plan_bytes", at, library.outBlock.address);
    const bytes = library.outU64();
    const plan = library.allocate(bytes);
    try {
      library.call("kv_plan_init", at, 0, plan.address, BigInt(bytes));
      return Number(library.raw("kv_plan_page_bytes", plan.address));
    } finally {
      library.release(plan);
    }
  } finally {
    library.release(block);
  }
}
