// What the tests of the JavaScript host share: modules, small specs and tokens, instances that lie.
import { readFile } from "node:fs/promises";
import { pathToFileURL } from "node:url";

const folder = (name) => pathToFileURL(`${process.env[name]}/`);
export const HOST = folder("KVASSAY_JS_HOST");
export const MODULES = folder("KVASSAY_JS_MODULES");

export const host = await import(new URL("kvassay.mjs", HOST));
export const internal = (name) => import(new URL(`src/${name}.mjs`, HOST));
const { Library } = await internal("library");
const { pinned } = await internal("selftest");

export const TURBO = {
  layers: 1, kv_heads: 2, query_heads: 4, head_dim: 64, page_tokens: 16,
  keys: "turbo:3.5", values: "turbo:3", key_centre: "page", value_centre: "frozen",
};
export const TOKEN = TURBO.kv_heads * TURBO.head_dim;
export const QUERY = TURBO.query_heads * TURBO.head_dim;

export const tokens = (count, seed = 1) => pinned(seed, count * TOKEN);
export const query = (count = 1) => pinned(99, count * QUERY);
export const moduleBytes = () => readFile(new URL("kvassay-scalar.wasm", MODULES));
export const loadScalar = (options = {}) => host.load({ modules: MODULES, variant: "scalar", ...options });

/** A cache of a spec with `count` tokens. */
export function filled(library, count, spec = TURBO) {
  const cache = library.prepare(spec);
  cache.append(0, tokens(count), tokens(count, 2));
  return cache;
}

/** The exports of a fresh instance, with some functions replaced; each gets the true one. */
export async function tampered(replace) {
  const { instance } = await WebAssembly.instantiate(await moduleBytes());
  const exports = { ...instance.exports };
  for (const [name, make] of Object.entries(replace)) exports[name] = make(exports[name], instance.exports);
  return exports;
}

/** A library over tampered exports. */
export const lying = async (replace) => new Library(await tampered(replace));

export const sameBytes = (a, b) => Buffer.compare(asBuffer(a), asBuffer(b)) === 0;
const asBuffer = (x) => Buffer.from(x.buffer, x.byteOffset, x.byteLength);
