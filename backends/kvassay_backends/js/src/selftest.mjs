// Small caches of every codec family on fixed inputs, against the digest that the numeric contract
// gives: an engine or a module that is wrong on any of them is not used.
import { sha256, sha256Hex } from "./sha256.mjs";

const SHAPE = { layers: 1, kv_heads: 1, query_heads: 4, page_tokens: 16, seed: 7 };
const CENTRED = { key_centre: "page", value_centre: "frozen" };
const TOKENS = 40;
const QUERIES = 3;

export const SPECS = [
  { ...SHAPE, head_dim: 64, keys: "turbo:4", values: "turbo:4" },
  { ...SHAPE, head_dim: 80, keys: "turbo:3.5", values: "turbo:2.5", ...CENTRED },
  { ...SHAPE, head_dim: 64, keys: "turbo:2.5+qjl", values: "turbo:3", scale: "u8log" },
  { ...SHAPE, head_dim: 64, keys: "turbo:3", values: "turbo:2", scale: "fp16", rounds: 1 },
  { ...SHAPE, head_dim: 64, keys: "kivi:4", values: "kivi:3" },
  { ...SHAPE, head_dim: 64, keys: "kivi:2", values: "kivi:2", window: 8, sinks: 2 },
  { ...SHAPE, head_dim: 64 },
];

/** SHA-256 over the SHA-256 of each cache's dump, scores and outputs; the reference backend gives it. */
export const EXPECTED =
  "49e7a250cac02de641f3cf2ef85182c098e2ec722019edb257b7d43e7ebf85a0";

/** xorshift32 (Marsaglia 2003): multiples of 2^-10 between -2 and 2. */
export function pinned(seed, count) {
  let x = seed;
  return Float32Array.from({ length: count }, () => {
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    return (((x >>> 0) % 4001) - 2000) / 1024;
  });
}

function digestOf(library, spec, number) {
  const token = spec.kv_heads * spec.head_dim;
  const query = spec.query_heads * spec.head_dim;
  const [keys, values] = [1, 2].map((stream) => pinned(16 * number + stream, TOKENS * token));
  const q = pinned(16 * number + 3, QUERIES * query);
  const cache = library.prepare(spec);
  try {
    cache.append(0, keys, values);
    const floats = [cache.scores(0, q.subarray(q.length - query)), cache.attend(0, q)];
    const parts = [cache.dump(), ...floats.map((x) => new Uint8Array(x.buffer, x.byteOffset, x.byteLength))];
    return parts.map(sha256);
  } finally {
    cache.close();
  }
}

/** What these caches come to, as hexadecimal text. */
export function digest(library) {
  const parts = SPECS.flatMap((spec, number) => digestOf(library, spec, number + 1));
  const whole = new Uint8Array(32 * parts.length);
  parts.forEach((part, i) => whole.set(part, 32 * i));
  return sha256Hex(whole);
}

/** What is wrong with the library on this engine, or "". */
export function selfTest(library) {
  try {
    const found = digest(library);
    return found === EXPECTED ? "" : `self-test: pages, scores or outputs differ (${found.slice(0, 12)})`;
  } catch (error) {
    return `self-test: ${error.name}: ${error.message}`;
  }
}
