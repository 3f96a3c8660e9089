// Lives of caches in one linear memory, one after the other, with two models that take turns.

function talk(cache, { keys, values, q }, tokens) {
  const width = cache.spec.kv_heads * cache.spec.head_dim;
  const outputs = [];
  for (let layer = 0; layer < cache.spec.layers; layer++) {
    cache.append(layer, keys.subarray(0, tokens * width), values.subarray(0, tokens * width));
    outputs.push(cache.attend(layer, q));
  }
  return outputs;
}

/** Append, attend, truncate, fork, reset, and again: the outputs after the reset. */
function session(library, { spec, prompt, steps, inputs }) {
  const cache = library.prepare(spec);
  talk(cache, inputs, prompt);
  cache.truncate(prompt - steps);
  talk(cache, inputs, steps);
  const other = cache.fork();
  talk(other, inputs, spec.page_tokens);
  other.close();
  cache.reset();
  const outputs = talk(cache, inputs, prompt);
  cache.close();
  return outputs;
}

/** `count` sessions with all models: linear memory after each, and the outputs of the last. */
export function run(library, models, count) {
  const memory = [];
  let outputs = [];
  for (let i = 0; i < count; i++) {
    outputs = models.flatMap((model) => session(library, model));
    memory.push(library.memoryStats());
  }
  return { memory, outputs };
}
