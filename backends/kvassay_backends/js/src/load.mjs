// Chooses a module: the fastest whose instructions the engine has and which gives the right bits here.
import { CacheMemoryError, InputError, KvassayError, ModuleError, UnavailableError } from "./errors.mjs";
import { features } from "./features.mjs";
import { Library } from "./library.mjs";
import { PAGE_BYTES } from "./memory.mjs";
import { selfTest } from "./selftest.mjs";
import { sha256Hex } from "./sha256.mjs";

/** Best first, with the feature that each needs. */
const NEEDS = { relaxed: "relaxed", simd128: "simd128", scalar: null };
export const VARIANTS = Object.keys(NEEDS);
const DEFAULT_MODULES = new URL("../wasm/", import.meta.url);

/**
 * A library of the fastest variant that runs and self-tests right, or of exactly `variant`.
 * Raises UnavailableError with the reason of each; `report` of the library keeps them too.
 */
export async function load({ modules = DEFAULT_MODULES, variant, memoryLimit } = {}) {
  if (variant !== undefined && !VARIANTS.includes(variant))
    throw new InputError(`variant ${JSON.stringify(variant)} is not one of ${VARIANTS.join(", ")}`);
  checkLimit(memoryLimit);
  const found = features();
  const report = [];
  for (const name of variant ? [variant] : VARIANTS) {
    const outcome = await attempt(name, modules, memoryLimit, found);
    report.push({ variant: name, status: outcome.status, reason: outcome.reason });
    if (outcome.library) return Object.assign(outcome.library, { report });
  }
  const reasons = report.map((line) => `${line.variant}: ${line.status}: ${line.reason}`);
  throw Object.assign(new UnavailableError(`no variant runs here: ${reasons.join("; ")}`), { report });
}

async function attempt(name, modules, memoryLimit, found) {
  const feature = NEEDS[name];
  if (feature && found[feature].status !== "ready") return found[feature];
  try {
    const { module, digest } = await compile(sourceOf(name, modules));
    if (WebAssembly.Module.imports(module).length)
      throw new ModuleError("the module wants imports; kvassay's have none");
    const library = new Library(new WebAssembly.Instance(module).exports, { digest });
    limit(library, memoryLimit);
    if (library.variants.length !== 1 || library.variant !== name)
      throw new ModuleError(`the module given for ${name} holds ${library.variants.join(", ")}`);
    const reason = selfTest(library);
    return reason ? { status: "broken", reason } : { status: "ready", reason: "", library };
  } catch (error) {
    if (error instanceof CacheMemoryError) throw error;
    if (error instanceof MissingError) return { status: "not-built", reason: error.message };
    if (error instanceof KvassayError || error instanceof WebAssembly.CompileError)
      return { status: "broken", reason: `${error.name}: ${error.message}` };
    throw error;
  }
}

function checkLimit(bytes) {
  if (bytes !== undefined && !(Number.isSafeInteger(bytes) && bytes >= PAGE_BYTES))
    throw new InputError(`memoryLimit: ${bytes} is not a number of bytes of at least ${PAGE_BYTES}`);
}

function limit(library, bytes) {
  if (bytes === undefined) return;
  const now = library.memoryStats().bytes;
  if (now > bytes)
    throw new CacheMemoryError(
      `memoryLimit: the module alone takes ${now} bytes, more than ${bytes}; raise the limit`, now, bytes,
    );
  library.raw("kv_wasm_set_cap", Math.min(65536, Math.floor(bytes / PAGE_BYTES)));
}

function sourceOf(name, modules) {
  if (typeof modules === "string" || modules instanceof URL) {
    const base = modules instanceof URL ? modules : new URL(modules, globalThis.location?.href);
    return new URL(`kvassay-${name}.wasm`, base);
  }
  return modules?.[name];
}

/** The module of a variant is not where it was said to be. */
class MissingError extends Error {}

async function compile(source) {
  if (source === undefined) throw new MissingError("no module was given for it");
  if (source instanceof WebAssembly.Module) return { module: source, digest: "" };
  const bytes = new Uint8Array(
    ArrayBuffer.isView(source) || source instanceof ArrayBuffer ? source : await read(source),
  );
  return { module: await WebAssembly.compile(bytes), digest: sha256Hex(bytes) };
}

async function read(source) {
  const url = source instanceof URL ? source : new URL(source, globalThis.location?.href);
  try {
    if (url.protocol === "file:") return await (await import("node:fs/promises")).readFile(url);
    const answer = await fetch(url);
    if (!answer.ok) throw new Error(`${answer.status} ${answer.statusText}`);
    return await answer.arrayBuffer();
  } catch (error) {
    throw new MissingError(`${url} cannot be read: ${error.message}`);
  }
}
