// Linear memory: growth, stale handles, bounds, caps, in-place blocks, long appends.
import assert from "node:assert/strict";
import { test } from "node:test";
import { QUERY, TOKEN, TURBO, filled, host, loadScalar, query, sameBytes, tokens } from "./support.mjs";

const { CacheMemoryError, InputError, NonFiniteError, StaleViewError, StateError } = host;

test("a view taken before growth raises, and taken again it reads the same", async () => {
  const library = await loadScalar();
  const block = library.allocate(64);
  block.write(new Uint8Array(64).fill(7));
  const view = block.view(Uint8Array);
  assert.equal(view.array[3], 7);
  library.reserve(64 * 2 ** 20);
  assert.throws(() => view.array, StaleViewError);
  assert.equal(block.view(Uint8Array).array[3], 7);
});

test("growth by zero pages detaches too", async () => {
  const library = await loadScalar();
  const block = library.allocate(64);
  const view = block.view(Uint8Array);
  library.exports.memory.grow(0);
  assert.throws(() => view.array, StaleViewError);
  assert.equal(block.read(Uint8Array).length, 64);
});

test("a cache goes on after growth from outside", async () => {
  const library = await loadScalar();
  const cache = filled(library, 40);
  const before = cache.attend(0, query());
  library.exports.memory.grow(3);
  cache.append(0, tokens(0), tokens(0));
  assert.ok(sameBytes(cache.attend(0, query()), before));
});

test("freed blocks, closed caches and closed libraries raise", async () => {
  const library = await loadScalar();
  const block = library.allocate(64);
  const [part, view] = [block.slice(16, 16), block.view(Uint8Array)];
  block.free();
  block.free();
  for (const use of [() => block.address, () => part.read(Uint8Array), () => view.array])
    assert.throws(use, StaleViewError);
  const cache = filled(library, 20);
  cache.close();
  cache.close();
  assert.throws(() => cache.attend(0, query()), StateError);
  const other = filled(library, 20);
  const kept = library.allocate(64);
  library.close();
  assert.throws(() => other.attend(0, query()), StateError);
  assert.throws(() => kept.read(Uint8Array), StateError);
  assert.throws(() => library.prepare(TURBO), StateError);
});

test("ranges outside a block are refused", async () => {
  const library = await loadScalar();
  const block = library.allocate(64);
  for (const use of [
    () => block.read(Uint8Array, 60, 5),
    () => block.read(Uint8Array, -1, 1),
    () => block.write(new Uint8Array(65)),
    () => block.view(Float32Array, 2, 1),
    () => block.slice(65, 0),
    () => block.slice(0.5, 1),
    () => library.allocate(-1),
  ])
    assert.throws(use, InputError);
});

test("at the cap an error says bytes asked and left, and the cache goes on", async () => {
  const library = await loadScalar({ memoryLimit: 4 * 2 ** 20 });
  const cache = filled(library, 96, { ...TURBO, keys: "fp16", values: "fp16", key_centre: "none", value_centre: "none" });
  const before = cache.attend(0, query());
  const length = cache.length;
  let refused = null;
  for (let i = 0; i < 200 && !refused; i++) {
    const dump = cache.length;
    try {
      cache.append(0, tokens(500), tokens(500));
    } catch (error) {
      refused = error;
      assert.equal(cache.length, dump, "a refused append changes nothing");
    }
  }
  assert.ok(refused instanceof CacheMemoryError, String(refused));
  assert.ok(refused.asked > 0 && refused.left >= 0 && refused.left < 4 * 2 ** 20);
  assert.match(refused.message, /bytes asked, .* left/);
  assert.ok(library.memoryStats().bytes <= 4 * 2 ** 20);
  cache.attend(0, query());
  cache.truncate(length);
  assert.ok(sameBytes(cache.attend(0, query()), before));
  cache.reset();
  cache.append(0, tokens(96), tokens(96, 2));
  assert.ok(sameBytes(cache.attend(0, query()), before));
});

test("a cap below the module's own size is refused", async () => {
  await assert.rejects(loadScalar({ memoryLimit: 65536 }), CacheMemoryError);
  await assert.rejects(loadScalar({ memoryLimit: 10 }), InputError);
});

test("a long append gives the bytes of single ones, in little memory", async () => {
  const count = 20000;
  const library = await loadScalar();
  const [keys, values] = [tokens(count), tokens(count, 2)];
  const long = library.prepare(TURBO);
  long.append(0, keys, values);
  const grown = library.memoryStats().bytes;
  assert.ok(grown < keys.byteLength, `${grown} bytes of memory for ${keys.byteLength} of keys`);
  const short = library.prepare(TURBO);
  for (let at = 0; at < count; at += 1000)
    short.append(0, keys.subarray(at * TOKEN, (at + 1000) * TOKEN), values.subarray(at * TOKEN, (at + 1000) * TOKEN));
  assert.ok(sameBytes(long.dump(), short.dump()));
});

test("a long append that is refused stores nothing", async () => {
  const library = await loadScalar();
  const cache = filled(library, 10);
  const before = cache.dump();
  const values = tokens(20000, 2);
  values[15000 * TOKEN + 70] = Infinity;
  const place = { layer: 0, token: 15000, head: 1, channel: 6 };
  assert.throws(() => cache.append(0, tokens(20000), values), (error) => {
    assert.ok(error instanceof NonFiniteError);
    assert.deepEqual({ ...error, name: undefined }, { ...place, name: undefined });
    return true;
  });
  assert.ok(sameBytes(cache.dump(), before));
});

test("blocks are read and written in place", async () => {
  const library = await loadScalar();
  const cache = filled(library, 40);
  const [q, out] = [library.allocate(4 * QUERY), library.allocate(4 * QUERY)];
  q.write(query());
  assert.equal(cache.attend(0, q, out), out);
  assert.ok(sameBytes(out.read(Float32Array), cache.attend(0, query())));
  const given = new Float32Array(QUERY);
  assert.equal(cache.attend(0, query(), given), given);
  assert.ok(sameBytes(given, out.read(Float32Array)));
  const other = await loadScalar();
  assert.throws(() => cache.attend(0, other.allocate(4 * QUERY)), InputError);
  assert.throws(() => cache.attend(0, q, other.allocate(4 * QUERY)), InputError);
});

test("a hundred sessions grow memory in the first alone and leave nothing", async () => {
  const library = await loadScalar();
  const seen = [];
  for (let i = 0; i < 100; i++) {
    const cache = filled(library, 200);
    const fork = cache.fork();
    fork.append(0, tokens(30), tokens(30));
    fork.close();
    cache.truncate(0);
    cache.reset();
    cache.close();
    seen.push(library.memoryStats());
  }
  assert.equal(seen.at(-1).growths, seen[0].growths);
  assert.equal(seen.at(-1).used, seen[0].used);
});
