// The page's side: one promise a call.
const worker = new Worker(new URL("./worker.mjs", import.meta.url), { type: "module", name: "./wasm/" });
const waiting = new Map();
worker.onmessage = ({ data: { id, result, error } }) => {
  const { resolve, reject } = waiting.get(id);
  waiting.delete(id);
  if (error) reject(new Error(error));
  else resolve(result);
};
const answer = (id) => new Promise((resolve, reject) => waiting.set(id, { resolve, reject }));
let calls = 0;
function call(action, ...given) {
  const answered = answer(++calls);
  worker.postMessage({ id: calls, action, given });
  return answered;
}

await answer(0);
const variant = await call("open", { layers: 1, kv_heads: 2, query_heads: 4, head_dim: 64 });
const keys = Float32Array.from({ length: 300 * 2 * 64 }, (_, i) => Math.sin(i)); // after RoPE
await call("append", 0, keys, keys.map((key) => -key));
const out = await call("attend", 0, keys.slice(0, 4 * 64));
const { allocated } = await call("stats");
document.body.textContent = `variant ${variant}, ${out.length} numbers, ${allocated} bytes held`;
