// Time, as far as the clock can tell: browsers let it step by 5 us to 1 ms.

/** A sample that lasts fewer steps of the clock is no measurement. */
export const LEAST_STEPS = 50;
const LEAST_MS = 20;
const LONGEST_STEP_SEARCH_MS = 200;

/** The step of performance.now() in ms: the least difference of two readings that differ. */
export function clockStep() {
  let step = Infinity;
  const end = performance.now() + LONGEST_STEP_SEARCH_MS;
  for (let last = performance.now(), now = last; now < end; last = now) {
    while (now === last) now = performance.now();
    step = Math.min(step, now - last);
  }
  return step;
}

function lasting(work, repeats) {
  const start = performance.now();
  for (let i = 0; i < repeats; i++) work();
  return performance.now() - start;
}

/** Repeats that make a sample three times as long as it must be: found by doubling, which warms the code up. */
export function repeatsFor(work, step) {
  let repeats = 1;
  while (lasting(work, repeats) < Math.max(LEAST_MS, 3 * LEAST_STEPS * step)) repeats *= 2;
  return repeats;
}

/** One sample: ms and how many steps of the clock it lasted; refused where these are too few. */
export function sample(work, repeats, step) {
  const ms = lasting(work, repeats);
  const steps = ms / step;
  return { ms, repeats, steps, refused: steps < LEAST_STEPS };
}
