// The cache lives in a worker, so that the page stays responsive; vectors go to and fro as transferred buffers.
import { load, preset } from "kvassay";

const modules = new URL(self.name, self.location.href).href; // where the .wasm files are served
const library = await load({ modules, memoryLimit: 256 * 2 ** 20 });
let cache;

const actions = {
  open: (shape) => ((cache = library.prepare(preset("turbo", shape))), library.variant),
  append: (layer, keys, values) => cache.append(layer, keys, values),
  attend: (layer, q) => cache.attend(layer, q).slice(), // a copy: the result is in the module's memory
  stats: () => cache.stats(),
  dump: () => cache.dump(),
};

self.onmessage = ({ data: { id, action, given } }) => {
  try {
    self.postMessage({ id, result: actions[action](...given) });
  } catch (error) {
    self.postMessage({ id, error: `${error.name}: ${error.message}` });
  }
};
self.postMessage({ id: 0, result: library.variant }); // ready
