// Memory over sessions: a hundred of them on one module, which must not grow after the first.

import { TruncateError, preset } from "../host/kvassay.mjs";
import { pinned } from "./golden.mjs";

export const SESSIONS = 100;
const TOKENS = 320;
const CHUNK = 80;
/** The "model switch": shapes and presets that follow each other within a session. */
const MODELS = [
  preset("turbo", { layers: 2, kv_heads: 2, query_heads: 6, head_dim: 64 }),
  preset("kivi", { layers: 1, kv_heads: 4, query_heads: 4, head_dim: 64 }),
  preset("fp16", { layers: 2, kv_heads: 1, query_heads: 4, head_dim: 128 }),
];

function fill(cache, spec, numbers) {
  const token = spec.kv_heads * spec.head_dim;
  for (let layer = 0; layer < spec.layers; layer++) {
    for (let at = 0; at < TOKENS; at += CHUNK) {
      const chunk = numbers.subarray(at, at + CHUNK * token);
      cache.append(layer, chunk, chunk);
    }
    cache.attend(layer, numbers.subarray(0, spec.query_heads * spec.head_dim));
  }
}

/** Truncates one token away, or to the nearest length that codes allow. */
function truncate(cache) {
  const n = cache.length - 1;
  try {
    cache.truncate(n);
  } catch (error) {
    if (!(error instanceof TruncateError)) throw error;
    cache.truncate(Math.max(...error.allowed.filter((length) => length <= n)));
  }
}

function session(library, numbers) {
  for (const spec of MODELS) {
    const cache = library.prepare(spec);
    try {
      fill(cache, spec, numbers);
      truncate(cache);
      cache.reset();
      fill(cache, spec, numbers);
    } finally {
      cache.close();
    }
  }
}

/**
 * A record, with the memory after each session as `series`.
 * @param {(done: number) => Promise<void>} step
 */
export async function memory(library, step) {
  const numbers = pinned(7, (TOKENS + CHUNK) * 256);
  const series = [];
  for (let done = 1; done <= SESSIONS; done++) {
    session(library, numbers);
    const { pages, growths, used, highWater } = library.memoryStats();
    series.push({ pages, growths, used, highWater });
    if (done % 10 === 0) await step(done);
  }
  return {
    check: "wasm.growth_events",
    subject: `${SESSIONS} sessions`,
    variant: library.variant,
    value: series.at(-1).growths - series[0].growths,
    comparisons: SESSIONS - 1,
    series,
  };
}
