// Modules that lie, trap or compute wrongly: each is refused by name.
import assert from "node:assert/strict";
import { test } from "node:test";
import { MODULES, TURBO, filled, host, internal, loadScalar, lying, moduleBytes, query, tampered } from "./support.mjs";

const { ModuleError, UnavailableError, load } = host;
const { Library } = await internal("library");
const { selfTest } = await internal("selftest");

const writes = (offset, value) => (real, { memory }) => (...args) => {
  const code = real(...args);
  new DataView(memory.buffer).setUint32(args.at(offset.argument) + offset.bytes, value, true);
  return code;
};

test("a page outside memory", async () => {
  const library = await lying({ kv_cache_page: writes({ argument: -3, bytes: 0 }, 0xfffffff0) });
  assert.throws(() => filled(library, 40).pages(0), /not inside/);
});

test("a page larger than memory", async () => {
  const library = await lying({ kv_cache_page: writes({ argument: -2, bytes: 0 }, 0x7fffffff) });
  assert.throws(() => filled(library, 40).pages(0), ModuleError);
});

test("a page of more than 2^53 bytes", async () => {
  const library = await lying({ kv_cache_page: writes({ argument: -2, bytes: 4 }, 0xffffffff) });
  assert.throws(() => filled(library, 40).pages(0), ModuleError);
});

test("an allocation outside memory, or not aligned", async () => {
  for (const pointer of [0x7fffff00, 4]) {
    const library = await lying({});
    library.memory.exports = { ...library.exports, kv_wasm_alloc: () => pointer };
    assert.throws(() => library.allocate(64), ModuleError);
  }
});

test("a cache at no address", async () => {
  for (const pointer of [0, 0xfffffffc]) {
    const library = await lying({ kv_cache_create: writes({ argument: -2, bytes: 0 }, pointer) });
    assert.throws(() => library.prepare(TURBO), ModuleError);
  }
});

test("a dump of more bytes than an address can name", async () => {
  const library = await lying({ kv_cache_dump_bytes: writes({ argument: -2, bytes: 4 }, 1) });
  assert.throws(() => filled(library, 40).dump(), ModuleError);
});

test("sizes that are not those of the engine", async () => {
  const library = await lying({ kv_wasm_pages: (real) => () => real() + 1 });
  assert.throws(() => library.memoryStats(), /kv_wasm_pages/);
});

test("information outside memory, of another version, without a name", async () => {
  await assert.rejects(lying({ kv_get_info: () => () => 0xfffffff0 }), ModuleError);
  await assert.rejects(lying({ kv_get_info: () => () => 0 }), ModuleError);
  const older = (real, { memory }) => () => {
    const at = real();
    new DataView(memory.buffer).setUint32(at, 7, true);
    return at;
  };
  await assert.rejects(lying({ kv_get_info: older }), /abi_version is 7, this host needs 1/);
  await assert.rejects(lying({ kv_variant_name: () => () => 0xffffffff }), ModuleError);
});

test("an unknown code, and one without a reason", async () => {
  const library = await lying({ kv_cache_reset: () => () => 77 });
  assert.throws(() => filled(library, 4).reset(), /unknown code 77/);
});

test("a missing function and a missing memory", async () => {
  const exports = await tampered({});
  assert.throws(() => new Library({ ...exports, kv_cache_fork: undefined }), /does not export kv_cache_fork/);
  assert.throws(() => new Library({ ...exports, memory: undefined }), ModuleError);
});

test("after a trap the library is not used again", async () => {
  const trap = () => () => {
    throw new WebAssembly.RuntimeError("unreachable");
  };
  const library = await lying({ kv_cache_attend: trap });
  const cache = filled(library, 40);
  assert.throws(() => cache.attend(0, query()), ModuleError);
  assert.throws(() => cache.length, /load the module again/);
  assert.throws(() => library.prepare(TURBO), ModuleError);
  cache.close();
});

test("one wrong bit of an output is found by the self-test", async () => {
  const flip = (real, { memory }) => (...args) => {
    const code = real(...args);
    new Uint8Array(memory.buffer)[args.at(-2)] ^= 1;
    return code;
  };
  assert.equal(selfTest(await lying({})), "");
  assert.match(selfTest(await lying({ kv_cache_attend: flip })), /differ/);
  assert.match(selfTest(await lying({ kv_cache_scores: (real) => (...args) => real(...args) + 10 })), /StateError|ModuleError/);
});

test("a module whose code is wrong is broken, and nothing takes its place", async () => {
  const bytes = new Uint8Array(await moduleBytes());
  // The last coefficient of the exponential, 0x1.5bba14p-10, with a wrong bit.
  const constant = new Float32Array([(0x15bba14 / 0x1000000) * 2 ** -10]);
  const at = Buffer.from(bytes).indexOf(Buffer.from(constant.buffer));
  assert.ok(at > 0, "the constant is in the module");
  bytes[at + 2] ^= 0x40;
  await assert.rejects(load({ modules: { scalar: bytes } }), (error) => {
    assert.ok(error instanceof UnavailableError);
    const [relaxed, simd128, scalar] = error.report;
    assert.equal(scalar.status, "broken");
    assert.match(scalar.reason, /self-test/);
    assert.notEqual(relaxed.status, "ready");
    assert.notEqual(simd128.status, "ready");
    return true;
  });
});

test("no module, a wrong one, one that is none, one that wants imports", async () => {
  const reasons = async (modules, variant) => {
    const error = await load({ modules, variant }).catch((error) => error);
    assert.ok(error instanceof UnavailableError, String(error));
    return error.report.at(-1);
  };
  assert.equal((await reasons({}, "scalar")).status, "not-built");
  assert.equal((await reasons(new URL("nowhere/", MODULES), "scalar")).status, "not-built");
  assert.match((await reasons({ simd128: await moduleBytes() }, "simd128")).reason, /holds scalar/);
  assert.match((await reasons({ scalar: new Uint8Array(8) }, "scalar")).reason, /CompileError/);
  const imports = [0, 97, 115, 109, 1, 0, 0, 0, 1, 4, 1, 0x60, 0, 0, 2, 7, 1, 1, 97, 1, 98, 0, 0];
  assert.match((await reasons({ scalar: new Uint8Array(imports) }, "scalar")).reason, /imports/);
});

test("a variant by name is that one", async () => {
  assert.equal((await loadScalar()).variant, "scalar");
  await assert.rejects(load({ modules: MODULES, variant: "avx2" }), host.InputError);
});
