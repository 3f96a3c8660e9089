// The relaxed dot at the extremes of our operands, with accumulators that are not zero, before and
// after the engine compiles it a second time.

const LEFT = [-127, -64, -63, -1, 0, 1, 63, 64, 127]; // signed: a query, a centroid
const RIGHT = [0, 1, 63, 64, 126, 127]; // 7 bits: a centroid moved up, a plane of a weight
const SUMS = [0, 1, -1, 576 * 127 * 127, -576 * 127 * 127, 2 ** 31 - 1 - 65536, -(2 ** 31) + 65536];
const ROUNDS = 60;

/** Lanes compared, lanes that differ, and the first of them. */
export function adversarial(relaxedDot, exactDot) {
  const dot = relaxedDot();
  const result = { comparisons: 0, mismatches: 0, first: null };
  let turn = 0;
  const next = (values) => values[(turn = (turn * 1103515245 + 12345) & 0x7fffffff) % values.length];
  const check = (a, b, c) => {
    const found = Array.from(dot(a, b, c));
    const expected = exactDot(a, b, c);
    result.comparisons += 4;
    for (let lane = 0; lane < 4; lane++)
      if (found[lane] !== expected[lane]) {
        result.mismatches++;
        result.first ??= { left: a, right: b, sums: c, expected, found };
      }
  };
  const times = (values, n) => Array.from({ length: n }, () => next(values));
  for (let round = 0; round < ROUNDS; round++)
    for (const left of LEFT)
      for (const right of RIGHT) {
        check(Array(16).fill(left), Array(16).fill(right), times(SUMS, 4));
        check(times(LEFT, 16), times(RIGHT, 16), times(SUMS, 4));
      }
  return result;
}
