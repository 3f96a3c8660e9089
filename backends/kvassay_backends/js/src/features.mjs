// What the engine has, asked with one tiny module a feature: an opcode that an engine does not know
// fails the whole module it stands in, so the real modules are no probe.

const HEAD = [0, 97, 115, 109, 1, 0, 0, 0];
const V128_LOAD = (offset) => [0x41, 0, 0xfd, 0x00, 4, offset];

/** A module with one page of memory, exported as `m`, and one function `f` without parameters. */
function tiny(body) {
  const code = [0, ...body, 0x0b];
  return new Uint8Array([
    ...HEAD,
    ...[1, 4, 1, 0x60, 0, 0], // type: () -> ()
    ...[3, 2, 1, 0], // one function of it
    ...[5, 3, 1, 0, 1], // memory: one page
    ...[7, 9, 2, 1, 0x66, 0, 0, 1, 0x6d, 2, 0], // exports f, m
    ...[10, code.length + 2, 1, code.length, ...code],
  ]);
}

const MODULES = {
  // memory[48] = i32x4.dot_i16x8_s(memory[0], memory[16])
  simd128: tiny([0x41, 0, ...V128_LOAD(0), ...V128_LOAD(16), 0xfd, 0xba, 0x01, 0xfd, 0x0b, 4, 48]),
  // memory[48] = i32x4.relaxed_dot_i8x16_i7x16_add_s(memory[0], memory[16], memory[32])
  relaxed: tiny([
    ...[0x41, 0, ...V128_LOAD(0), ...V128_LOAD(16), ...V128_LOAD(32)],
    ...[0xfd, 0x93, 0x02, 0xfd, 0x0b, 4, 48],
  ]),
};

export const FEATURES = Object.keys(MODULES);

/** The relaxed dot of this engine on (i8[16], i7[16], i32[4]): fills and returns an Int32Array(4). */
export function relaxedDot() {
  const { f, m } = new WebAssembly.Instance(new WebAssembly.Module(MODULES.relaxed)).exports;
  const [left, right] = [new Int8Array(m.buffer, 0, 16), new Int8Array(m.buffer, 16, 16)];
  const [sums, out] = [new Int32Array(m.buffer, 32, 4), new Int32Array(m.buffer, 48, 4)];
  return (a, b, c) => {
    left.set(a);
    right.set(b);
    sums.set(c);
    f();
    return out;
  };
}

/** What that dot must give where it is exact: the sum of four products a lane, added to c. */
export function exactDot(a, b, c) {
  return c.map((sum, lane) => {
    for (let i = 4 * lane; i < 4 * lane + 4; i++) sum += a[i] * b[i];
    return sum | 0;
  });
}

// Some engines drop or misplace the accumulator until the function is compiled a second time.
function relaxedFault() {
  const dot = relaxedDot();
  const b = Array.from({ length: 16 }, (_, i) => [127, 0, 64, 1][(i + (i >> 2)) % 4]);
  for (const extreme of [127, -127, 63, -63]) {
    const a = Array.from({ length: 16 }, (_, i) => (i % 3 ? extreme : -extreme));
    for (const c of [[0, 0, 0, 0], [1, -2, 3, -4], [9290304, -9290304, 12345678, -1]]) {
      const [found, expected] = [dot(a, b, c), exactDot(a, b, c)];
      if (expected.some((x, lane) => x !== found[lane]))
        return `the relaxed dot on the accumulator [${c}] gives [${found}], not [${expected}]`;
    }
  }
  return "";
}

function probe(name) {
  if (!WebAssembly.validate(MODULES[name]))
    return { status: "unsupported", reason: `the engine does not know ${name} instructions` };
  const reason = name === "relaxed" ? relaxedFault() : "";
  return { status: reason ? "broken" : "ready", reason };
}

/** Each feature's state: ready, unsupported or broken, with the reason. */
export function features() {
  return Object.fromEntries(FEATURES.map((name) => [name, probe(name)]));
}
