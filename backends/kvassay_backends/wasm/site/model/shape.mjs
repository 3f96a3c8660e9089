// Shape, identity and matrices of a Llama-architecture model, with the fields and hashes that Python gives it.

/** Matrices and norms of a layer: field, name in the file, rows, columns. A norm is one row. */
export function layerTensors({ hidden, ffn, query_heads, kv_heads, head_dim }) {
  const queries = query_heads * head_dim;
  const kv = kv_heads * head_dim;
  return [
    ["attention_norm", "attn_norm", 1, hidden],
    ["query", "attn_q", queries, hidden],
    ["key", "attn_k", kv, hidden],
    ["value", "attn_v", kv, hidden],
    ["attention_output", "attn_output", hidden, queries],
    ["ffn_norm", "ffn_norm", 1, hidden],
    ["gate", "ffn_gate", ffn, hidden],
    ["up", "ffn_up", ffn, hidden],
    ["down", "ffn_down", hidden, ffn],
  ];
}

/** The fields of a cache spec that a model decides. */
export function cacheShape({ layers, query_heads, kv_heads, head_dim, ...config }) {
  const identity = {
    model: config.model_hash,
    tokenizer: config.tokenizer_hash,
    template: config.template_hash,
    runtime: "kvassay decoder 1",
  };
  const rope = { base: config.rope_base, dims: head_dim };
  return { layers, query_heads, kv_heads, head_dim, rope, identity };
}

/** SHA-256 as hexadecimal text; the engine's own where it offers one, which is only on https and loopback. */
export async function digest(bytes) {
  if (globalThis.crypto?.subtle === undefined) return (await import("../host/src/sha256.mjs")).sha256Hex(bytes);
  const made = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(made, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
