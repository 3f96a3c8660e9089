// Speed of fused decode attention by variant, preset and context: medians of interleaved samples, each of at least
// 50 steps of the clock. Shown, not judged: it is a fact about this device.

import { preset } from "../host/kvassay.mjs";
import { LEAST_STEPS, clockStep, sample } from "../measure/clock.mjs";
import { pinned } from "./golden.mjs";

export const CONTEXTS = [256, 1024, 4096];
export const PRESETS = ["turbo", "kivi", "fp16"];
const ROUNDS = 5;
const LEAST_MS = 20;
const SHAPE = { layers: 1, kv_heads: 1, query_heads: 4, head_dim: 128 };

function filled(library, name, context, numbers) {
  const cache = library.prepare(preset(name, SHAPE));
  for (let at = 0; at < context; at += CONTEXTS[0]) {
    const start = (at / CONTEXTS[0]) * 16; // other numbers in each chunk
    const chunk = numbers.subarray(start, start + CONTEXTS[0] * SHAPE.head_dim);
    cache.append(0, chunk, chunk);
  }
  return cache;
}

/** A sample of a task: ns a token; the first warms the code up and is not kept. */
function measure({ work, context, times, steps }, tick, isKept) {
  const taken = sample(work, tick, Math.max(LEAST_MS, 3 * LEAST_STEPS * tick));
  if (taken.refused) throw new RangeError(`a sample of ${taken.steps} steps of the clock is no measurement`);
  if (!isKept) return;
  times.push((taken.ms * 1e6) / taken.repeats / context);
  steps.push(taken.steps);
}

const median = (values) => values.toSorted((a, b) => a - b)[values.length >> 1];

/**
 * Records of one variant after the other in each round.
 * @param {object[]} libraries
 * @param {(done: number, all: number) => Promise<void>} step
 */
export async function speed(libraries, step) {
  const tick = clockStep();
  const numbers = pinned(11, (CONTEXTS[0] + CONTEXTS.at(-1) / 16) * SHAPE.head_dim);
  const q = pinned(12, SHAPE.query_heads * SHAPE.head_dim);
  const out = new Float32Array(q.length);
  const tasks = [];
  const all = libraries.length * PRESETS.length * CONTEXTS.length * (ROUNDS + 1);
  for (const context of CONTEXTS) {
    for (const name of PRESETS) {
      for (const library of libraries) {
        const cache = filled(library, name, context, numbers);
        const work = () => cache.attend(0, q, out);
        tasks.push({ library, name, context, cache, work, times: [], steps: [] });
      }
    }
  }
  for (let round = 0; round <= ROUNDS; round++) {
    for (const [number, task] of tasks.entries()) {
      measure(task, tick, round > 0);
      await step(tasks.length * round + number + 1, all);
    }
  }
  return tasks.map(({ library, name, context, cache, times, steps }) => {
    cache.close();
    return {
      check: "speed.attend",
      subject: name,
      context,
      variant: library.variant,
      value: median(times),
      unit: "ns a token and KV head, 4 query heads, head dim 128",
      spread: Math.max(...times) / Math.min(...times),
      comparisons: times.length,
      least_steps: Math.min(...steps),
      clock_ms: tick,
    };
  });
}
