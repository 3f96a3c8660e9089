// A runtime in JavaScript that uses the cache: appends, attends, dumps.
//
//   node standalone.mjs cache.kvdump
//
// It prints one line a fact and writes the dump, the same bytes as the programs beside it in other languages.
import { writeFile } from "node:fs/promises";
import { load, preset } from "kvassay";

const [layers, tokens, prompt, width] = [2, 300, 200, 2 * 64];

/** Number i of a sequence in [-1, 1), exact in binary16: what a model would compute. */
function number(i) {
  const mixed = ((BigInt(i) + 1n) * 0x9e3779b97f4a7c15n) & 0xffffffffffffffffn;
  return (Number(mixed >> 53n) - 1024) / 1024;
}

const library = await load();
const cache = library.prepare(preset("turbo", { layers, kv_heads: 2, query_heads: 4, head_dim: 64 }));
console.log(`variant ${library.variant}`);

// A prompt at once, then token by token, as a decoder does.
function append(layer, first, count) {
  const start = (layer * tokens + first) * width;
  const keys = Float32Array.from({ length: count * width }, (_, i) => number(start + i)); // after RoPE
  cache.append(layer, keys, keys.map((key) => -key));
}
for (let layer = 0; layer < layers; layer++) append(layer, 0, prompt);
for (let token = prompt; token < tokens; token++) {
  for (let layer = 0; layer < layers; layer++) append(layer, token, 1);
}

const q = Float32Array.from({ length: 4 * 64 }, (_, i) => number(2 ** 40 + i));
for (let layer = 0; layer < layers; layer++) {
  const bits = new Uint32Array(cache.attend(layer, q).slice(0, 4).buffer);
  console.log(`layer ${layer} attends ${[...bits].map((x) => x.toString(16).padStart(8, "0")).join(" ")}`);
}

const dump = cache.dump();
await writeFile(process.argv[2], dump);
console.log(`${dump.length} bytes, ${cache.stats().allocated} held`);
cache.close();
