// The life of a cache, its errors, and specs.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { QUERY, TOKEN, TURBO, filled, host, internal, loadScalar, query, sameBytes, tokens } from "./support.mjs";

const { sha256Hex } = await internal("sha256");

test("SHA-256 is that of Node", () => {
  for (const size of [0, 1, 55, 56, 63, 64, 65, 1000]) {
    const bytes = new Uint8Array(size).map((_, i) => 31 * i);
    assert.equal(sha256Hex(bytes), createHash("sha256").update(bytes).digest("hex"));
  }
});

test("state depends on the tokens alone", async () => {
  const library = await loadScalar();
  const whole = filled(library, 75);
  const pieces = library.prepare(TURBO);
  for (let at = 0, step = 1; at < 75; at += step, step = Math.min(2 * step + 1, 75 - at))
    pieces.append(0, tokens(75).subarray(at * TOKEN, (at + step) * TOKEN), tokens(75, 2).subarray(at * TOKEN, (at + step) * TOKEN));
  assert.equal(pieces.length, 75);
  assert.ok(sameBytes(whole.dump(), pieces.dump()));
  const fork = whole.fork();
  fork.append(0, tokens(20), tokens(20));
  assert.ok(sameBytes(whole.dump(), pieces.dump()));
  fork.close();
  whole.truncate(70);
  pieces.reset();
  pieces.append(0, tokens(75).subarray(0, 70 * TOKEN), tokens(75, 2).subarray(0, 70 * TOKEN));
  assert.ok(sameBytes(whole.dump(), pieces.dump()));
});

test("dumps restore, and refuse another identity by its field", async () => {
  const library = await loadScalar();
  const cache = filled(library, 75);
  const dump = cache.dump();
  const again = library.restore(TURBO, dump);
  assert.ok(sameBytes(again.attend(0, query(3)), cache.attend(0, query(3))));
  const refused = (spec, bytes, kind, field) =>
    assert.throws(() => library.restore(spec, bytes), (error) => {
      assert.ok(error instanceof kind, String(error));
      if (field) assert.equal(error.field, field);
      return true;
    });
  refused({ ...TURBO, seed: 5 }, dump, host.IdentityError, "seed");
  refused({ ...TURBO, identity: { model: "other" } }, dump, host.IdentityError, "identity");
  const damaged = dump.slice();
  damaged[dump.length - 70] ^= 1;
  refused(TURBO, damaged, host.PageError);
  refused(TURBO, dump.subarray(0, dump.length / 2), host.PageError);
  refused(TURBO, new Uint8Array(0), host.PageError);
});

/** The dump with one byte changed and its checksum made right. */
function changed(dump, at, bits) {
  const bad = dump.slice();
  bad[at] ^= bits;
  bad.fill(0, 16, 20);
  let crc = 0xffffffff;
  for (const byte of bad) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  new DataView(bad.buffer).setUint32(16, ~crc >>> 0, true);
  return bad;
}

test("behind a right checksum the field says which error", async () => {
  const library = await loadScalar();
  const cache = library.prepare(TURBO);
  cache.append(0, tokens(40), tokens(40, 2));
  const dump = cache.dump();
  const size = new DataView(dump.buffer, dump.byteOffset).getUint32(24, true);
  const record = 32 + Math.ceil(size / 16) * 16;
  const said = (at, bits) => {
    try {
      library.restore(TURBO, changed(dump, at, bits));
    } catch (error) {
      return [error.constructor, error.field];
    }
    return [];
  };
  assert.deepEqual(said(32, 1), [host.PageError, undefined]); // no JSON
  assert.deepEqual(said(33, 0x80), [host.PageError, undefined]); // no UTF-8
  assert.deepEqual(said(20, 2), [host.PageError, undefined]); // layers
  assert.deepEqual(said(record + 16, 1), [host.IdentityError, "window"]);
  assert.deepEqual(said(record + 8, 1), [host.IdentityError, "keys"]);
  assert.deepEqual(said(record + 14, 1), [host.PageError, undefined]); // reserved
  cache.close();
});

test("errors name what and where", async () => {
  const library = await loadScalar();
  const cache = library.prepare(TURBO);
  assert.throws(() => cache.attend(0, query()), host.StateError);
  cache.append(0, tokens(40), tokens(40, 2));
  const before = cache.dump();
  const bad = tokens(3);
  bad[TOKEN + 65] = NaN;
  assert.throws(() => cache.append(0, bad, tokens(3)), (error) => {
    assert.ok(error instanceof host.NonFiniteError);
    assert.deepEqual([error.layer, error.token, error.head, error.channel], [0, 1, 1, 1]);
    return true;
  });
  assert.throws(() => cache.truncate(3), (error) => {
    assert.ok(error instanceof host.TruncateError);
    assert.deepEqual(error.allowed, [0, 16]);
    return true;
  });
  for (const use of [
    () => cache.append(1, tokens(1), tokens(1)),
    () => cache.append(0, tokens(1), tokens(2)),
    () => cache.append(0, new Float32Array(5), new Float32Array(5)),
    () => cache.append(0, new Float64Array(TOKEN), new Float64Array(TOKEN)),
    () => cache.append(0, Array.from(tokens(1)), Array.from(tokens(1))),
    () => cache.attend(0, new Float32Array(QUERY - 1)),
    () => cache.attend(0, new Float32Array(0)),
    () => cache.attend(0, query(), new Float32Array(1)),
    () => cache.scores(0, query(2)),
    () => cache.truncate(-1),
    () => cache.truncate(1.5),
    () => library.restore(TURBO, "text"),
  ])
    assert.throws(use, host.InputError);
  assert.ok(sameBytes(cache.dump(), before));
});

test("specs that are none are refused by the field", async () => {
  const library = await loadScalar();
  for (const [change, field] of [
    [{ keys: "turbo:5" }, /keys/],
    [{ values: "turbo:3+qjl" }, /values/],
    [{ windows: 3 }, /windows/],
    [{ head_dim: undefined }, /head_dim/],
    [{ page_tokens: 0 }, /page_tokens/],
    [{ key_centre: "mean" }, /key_centre/],
    [{ seed: -1 }, /seed/],
    [{ seed: 2 ** 60 }, /seed/],
    [{ softmax_scale: 0 }, /softmax_scale/],
    [{ layer_overrides: { 3: {} } }, /layer_overrides/],
    [{ layer_overrides: { 0: { layers: 2 } } }, /layer_overrides/],
    [{ identity: { name: "x" } }, /identity/],
  ])
    assert.throws(() => library.prepare({ ...TURBO, ...change }), (error) => {
      assert.ok(error instanceof host.SpecError, String(error));
      assert.match(error.message, field);
      return true;
    });
  assert.throws(() => host.preset("turbot", {}), host.SpecError);
  assert.equal(library.supports(TURBO).ok, true);
  assert.equal(library.supports({ ...TURBO, head_dim: 72 }).ok, false);
  assert.throws(() => library.prepare({ ...TURBO, head_dim: 72 }), host.UnsupportedError);
});

test("what ran is in the record", async () => {
  const library = await loadScalar();
  const cache = filled(library, 40);
  cache.attend(0, query());
  const stats = cache.stats();
  assert.deepEqual(stats.ran, ["scalar"]);
  assert.equal(Object.values(stats.parts).reduce((a, b) => a + b), stats.allocated);
  assert.equal(stats.pages_encoded, 2);
  assert.match(library.digest, /^[0-9a-f]{64}$/);
  assert.equal(library.exact, true);
});
