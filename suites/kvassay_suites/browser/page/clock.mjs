// Time, as far as the clock can tell: browsers let it step by 5 us to 1 ms.

/** A sample that lasts fewer steps of the clock is no measurement. */
export const LEAST_STEPS = 50;
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

/** One sample: `work` again and again for `least` ms; refused where the clock made too few steps. */
export function sample(work, step, least) {
  const start = performance.now();
  let ms = 0;
  let repeats = 0;
  while (ms < least) {
    work();
    repeats++;
    ms = performance.now() - start;
  }
  return { ms, repeats, steps: ms / step, refused: ms / step < LEAST_STEPS };
}
