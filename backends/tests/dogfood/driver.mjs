// Carries out one request of a test in Node, on an exported page: node driver.mjs FOLDER < request.json
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const page = pathToFileURL(`${process.argv[2]}/`);
const part = (name) => import(new URL(name, page));
const { load, preset } = await part("host/kvassay.mjs");
const { Decoder, greedy } = await part("model/decoder.mjs");
const { bytesModel } = await part("model/file.mjs");
const { GGUF } = await part("model/gguf.mjs");
const { cacheShape } = await part("model/shape.mjs");
const { tinyModel } = await part("model/tiny.mjs");
const { Tokenizer } = await part("model/tokenizer.mjs");

const bytes = (path) => new Uint8Array(readFileSync(path));
const openModel = (library, name) =>
  name.startsWith("tiny-") ? tinyModel(library, name.slice(5)) : bytesModel(library, bytes(name));

const operations = {
  /** Ids and texts of what a model's tokenizer makes of texts. */
  tokens({ model, texts }) {
    const tokenizer = new Tokenizer(new GGUF(bytes(model)));
    return texts.map(([text, special]) => {
      const ids = tokenizer.encode(text, special);
      return { ids, text: tokenizer.decode(ids) };
    });
  },

  /** Logits after each prompt, and greedy tokens from there. */
  async decode({ model: name, variant, preset: policy, prompts, n }) {
    const library = await load({ variant });
    const model = await openModel(library, name);
    const decoder = new Decoder(library, model);
    const runs = [];
    for (const prompt of prompts) {
      const cache = library.prepare(preset(policy, cacheShape(model.config)));
      let logits = await decoder.forward(prompt, cache);
      const run = { logits: Array.from(logits), ids: [] };
      while (run.ids.length < n) {
        run.ids.push(greedy(logits));
        logits = await decoder.forward(run.ids.slice(-1), cache);
      }
      runs.push({ ...run, dump: Buffer.from(cache.dump()).toString("base64") });
      cache.close();
    }
    return { config: model.config, runs, variant: library.variant };
  },

  /** What each file is refused with, or "". */
  async refusals({ models }) {
    const library = await load({ variant: "scalar", memoryLimit: 2 ** 28 });
    const found = [];
    for (const path of models) {
      const before = library.memoryStats().used;
      try {
        (await bytesModel(library, bytes(path))).block.free();
        found.push("");
      } catch (error) {
        found.push(`${error.name}: ${error.message}`);
      }
      if (library.memoryStats().used !== before) found.push("memory was not given back");
    }
    return found;
  },

  /** Outcome and state after each action of a session. */
  async session({ steps, models = {}, memoryLimit }) {
    const { Session } = await part("session/session.mjs");
    const session = new Session((library, name) => openModel(library, models[name] ?? name), memoryLimit);
    const told = [];
    let said = "";
    session.report = ({ token }) => (said += token ?? "");
    for (const [name, ...args] of steps) {
      said = "";
      let outcome;
      try {
        outcome = await session[name](...args);
      } catch (error) {
        outcome = { error: `${error.name}: ${error.message}` };
      }
      told.push({ ...outcome, said, state: session.state() });
    }
    return told;
  },

  /** The record of the memory suite, on a library that keeps `leak` bytes of every cache it closes. */
  async memory({ leak }) {
    const { memory } = await part("assay/memory.mjs");
    const library = await load({ variant: "scalar" });
    const prepare = library.prepare.bind(library);
    library.prepare = (spec) => {
      if (leak) library.allocate(leak);
      return prepare(spec);
    };
    const { value, comparisons, series } = await memory(library, async () => {});
    return { value, comparisons, sessions: series.length };
  },

  /** The records of the speed suite. */
  async speed({ variant }) {
    const { speed } = await part("assay/speed.mjs");
    return speed([await load({ variant })], async () => {});
  },

  /** The names that modules export: a name that one imports and another lacks is an error here. */
  async exports({ modules }) {
    globalThis.self = {}; // workers answer there
    return Promise.all(modules.map(async (name) => Object.keys(await part(name))));
  },

  /** The verdict over given records. */
  async judge({ rules, records, variants }) {
    const { judge } = await part("assay/judge.mjs");
    return judge(rules, records, variants);
  },
};

const { operation, ...request } = JSON.parse(readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(await operations[operation](request)));
