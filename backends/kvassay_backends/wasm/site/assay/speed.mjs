// Speed of fused decode attention by variant, preset and context: medians of interleaved samples, each of at least
// 50 steps of the clock. Shown, not judged: it is a fact about this device.

import { preset } from "../host/kvassay.mjs";
import { clockStep, repeatsFor, sample } from "../measure/clock.mjs";
import { pinned } from "./golden.mjs";

export const CONTEXTS = [256, 1024, 4096];
export const PRESETS = ["turbo", "kivi", "fp16"];
const ROUNDS = 5;
const LONGEST = 8; // times that a refused sample is made twice as long
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

/** A sample that the clock accepts; code that got faster since its repeats were chosen needs more of them. */
function accepted(task, tick) {
  for (let longer = 0; ; longer++) {
    try {
      return { ...sample(task.work, task.repeats, tick), repeats: task.repeats };
    } catch (error) {
      if (!(error instanceof RangeError) || longer === LONGEST) throw error;
      task.repeats *= 2;
    }
  }
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
        tasks.push({ library, name, context, cache, work, repeats: repeatsFor(work, tick), times: [], steps: [] });
        await step(tasks.length, all);
      }
    }
  }
  for (let round = 0; round < ROUNDS; round++) {
    for (const [number, task] of tasks.entries()) {
      const { ms, steps, repeats } = accepted(task, tick);
      task.times.push((ms * 1e6) / repeats / task.context);
      task.steps.push(steps);
      await step(tasks.length * (round + 1) + number + 1, all);
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
