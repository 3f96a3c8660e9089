// A spec is the same plain data as in Python: Spec.to_dict() there is a spec here. The identity text
// made from it is the same too, byte for byte, so that dumps go either way.
import { SpecError } from "./errors.mjs";
import { sha256 } from "./sha256.mjs";

const DEFAULTS = {
  layers: undefined, kv_heads: undefined, query_heads: undefined, head_dim: undefined,
  keys: "fp16", values: "fp16", window: 0, sinks: 0, span: null, page_tokens: 64,
  key_centre: "none", value_centre: "none", scale: "u8", rounds: 2, seed: 0,
  softmax_scale: null, rope: null, layer_overrides: {}, identity: null,
};
const OVERRIDABLE = [
  "keys", "values", "window", "sinks", "span", "page_tokens", "key_centre", "value_centre", "scale",
];
const IDENTITY = { model: "", tokenizer: "", template: "", adapter: "", tokens: "", runtime: "" };
const ROPE = { base: undefined, dims: undefined, order: "interleaved", scaling: "none" };
const KEY_CENTRES = { none: 0, frozen: 1, page: 2 };
const VALUE_CENTRES = { none: 0, frozen: 1 };
const SCALES = { u8: 0, u8log: 1, fp16: 2 };
const RATES = { turbo: [2, 2.5, 3, 3.5, 4], kivi: [2, 3, 4] };

const TURBO = {
  keys: "turbo:3.5", values: "turbo:3", window: 128, sinks: 4,
  key_centre: "page",
};

/** Named specs, without a shape. */
export const PRESETS = {
  fp16: { keys: "fp16", values: "fp16" },
  turbo: TURBO,
  "turbo-qjl": { ...TURBO, keys: "turbo:3+qjl" },
  kivi: { keys: "kivi:2", values: "kivi:2", window: 32 },
};

/** The spec of a preset with the given shape; any field in `shape` overrides the preset's. */
export function preset(name, shape) {
  return { ...PRESETS[oneOf("preset", name, PRESETS)], ...shape };
}

/** All fields of a spec, checked as far as the module does not check them itself. */
export function complete(spec) {
  const full = withDefaults("spec", spec, DEFAULTS);
  for (const name of ["layers", "kv_heads", "query_heads"]) integer(name, full[name], 1, 65535);
  integer("head_dim", full.head_dim, 16, 576);
  integer("rounds", full.rounds, 1, 2);
  const scale = full.softmax_scale;
  if (scale !== null && !(scale >= 2 ** -20 && scale <= 2 ** 20))
    throw new SpecError(`softmax_scale: ${scale} is outside 2^-20 .. 2^20; give a number in it or null`);
  full.seed = seed(full.seed);
  if (full.identity) full.identity = withDefaults("identity", full.identity, IDENTITY);
  if (full.rope) full.rope = withDefaults("rope", full.rope, ROPE);
  full.layer_overrides = checkedOverrides(full);
  for (let layer = 0; layer < full.layers; layer++) layerFields(full, layer);
  return full;
}

/** The fields of kv_layer_spec for one layer of a complete spec. */
export function layerFields(full, layer) {
  const override = full.layer_overrides[layer] ?? {};
  const merged = { ...full, ...override };
  // A layer overridden to fp16 drops the centring of the codec it replaces.
  if (override.keys === "fp16" && !("key_centre" in override)) merged.key_centre = "none";
  if (override.values === "fp16" && !("value_centre" in override)) merged.value_centre = "none";
  for (const name of ["window", "sinks"]) integer(name, merged[name], 0, 2 ** 31 - 1);
  if (merged.span !== null) integer("span", merged.span, 1, 2 ** 31 - 1);
  return {
    kv_heads: full.kv_heads,
    query_heads: full.query_heads,
    head_dim: full.head_dim,
    page_tokens: integer("page_tokens", merged.page_tokens, 16, 1024),
    key_mode: mode("keys", merged.keys),
    value_mode: mode("values", merged.values),
    key_centre: KEY_CENTRES[oneOf("key_centre", merged.key_centre, KEY_CENTRES)],
    value_centre: VALUE_CENTRES[oneOf("value_centre", merged.value_centre, VALUE_CENTRES)],
    scale_kind: SCALES[oneOf("scale", merged.scale, SCALES)],
    rounds: full.rounds,
    reserved: 0,
    window: merged.window,
    sinks: merged.sinks,
    span: merged.span ?? 0,
    softmax_scale: effectiveScale(full),
    seed: full.seed,
  };
}

/** Canonical JSON of everything that identifies the cache, as Python writes it. */
export function identityText(spec) {
  const full = complete(spec);
  const data = { ...full, softmax_scale: new PythonFloat(effectiveScale(full)) };
  return canonical(data);
}

/** The 64-bit hashes in page headers: the model and its adapter, the tokenizer and its template, the runtime. */
export function identityHashes(full) {
  const { model, adapter, tokenizer, template, runtime } = full.identity ?? IDENTITY;
  return { model: hash(model, adapter), tokenizer: hash(tokenizer, template), runtime: hash(runtime) };
}

function effectiveScale(full) {
  return Math.fround(full.softmax_scale ?? 1 / Math.sqrt(full.head_dim));
}

function withDefaults(what, given, defaults) {
  if (typeof given !== "object" || given === null || Array.isArray(given))
    throw new SpecError(`${what}: not an object with its fields`);
  for (const name of Object.keys(given)) oneOf(`${what}: field`, name, defaults);
  const full = { ...defaults, ...given };
  const missing = Object.keys(full).filter((name) => full[name] === undefined);
  if (missing.length) throw new SpecError(`${what}: ${missing.join(", ")} must be given`);
  return full;
}

function checkedOverrides(full) {
  const overrides = full.layer_overrides ?? {};
  for (const [layer, override] of Object.entries(overrides)) {
    integer("layer_overrides: layer", Number(layer), 0, full.layers - 1);
    for (const name of Object.keys(override))
      oneOf(`layer_overrides[${layer}]: field`, name, Object.fromEntries(OVERRIDABLE.map((n) => [n, 0])));
  }
  return overrides;
}

function mode(stream, name) {
  if (name === "fp16") return 0;
  const match = /^(turbo|kivi):(\d(?:\.\d)?)(\+qjl)?$/.exec(String(name));
  const rate = match && RATES[match[1]].find((bits) => bits === Number(match[2]));
  if (!rate || (match[3] && (match[1] !== "turbo" || stream !== "keys")))
    throw new SpecError(`${stream}: no codec ${JSON.stringify(name)}; for instance turbo:3.5, kivi:2, fp16`);
  const family = match[3] ? 2 : match[1] === "turbo" ? 1 : 3;
  return 16 * family + 2 * rate;
}

function seed(value) {
  const number = typeof value === "string" && /^\d+$/.test(value) ? BigInt(value) : value;
  const sound = typeof number === "bigint" ? number >= 0n && number < 2n ** 64n : Number.isSafeInteger(number) && number >= 0;
  if (!sound)
    throw new SpecError(`seed: ${value} is not an integer below 2^64; above 2^53 give a BigInt or its digits as text`);
  return number;
}

function integer(name, value, low, high) {
  if (!Number.isInteger(value) || value < low || value > high)
    throw new SpecError(`${name}: ${value} is not an integer in ${low} .. ${high}`);
  return value;
}

function oneOf(name, value, known) {
  if (!Object.hasOwn(known, value))
    throw new SpecError(`${name} ${JSON.stringify(value)} is not one of ${Object.keys(known).join(", ")}`);
  return value;
}

function hash(...parts) {
  if (!parts.some((part) => part)) return 0n;
  const digest = sha256(new TextEncoder().encode(parts.join("\0")));
  return new DataView(digest.buffer).getBigUint64(0, true);
}

class PythonFloat {
  constructor(value) {
    this.value = value;
  }

  /** repr() of Python: the same shortest digits, another point at which exponents begin. */
  toString() {
    const [digits, exponent] = this.value.toExponential().split("e");
    const e = Number(exponent);
    if (e < -4 || e >= 16)
      return `${digits}e${e < 0 ? "-" : "+"}${String(Math.abs(e)).padStart(2, "0")}`;
    return Number.isInteger(this.value) ? `${this.value}.0` : String(this.value);
  }
}

function canonical(value) {
  if (value === null || typeof value === "boolean") return String(value);
  if (typeof value === "bigint" || value instanceof PythonFloat) return value.toString();
  if (typeof value === "number") return Number.isInteger(value) ? String(value) : new PythonFloat(value).toString();
  if (typeof value === "string") return asciiJson(value);
  const fields = Object.keys(value).sort();
  return `{${fields.map((name) => `${asciiJson(name)}:${canonical(value[name])}`).join(",")}}`;
}

function asciiJson(text) {
  const escape = (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return JSON.stringify(text).replace(/[\u007f-\uffff]/g, escape);
}
