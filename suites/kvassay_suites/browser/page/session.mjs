// Carries out what the Python side asks for, call by call, on one library; outputs go back as raw bytes.
import { clockStep, sample } from "./clock.mjs";
import { decode, digest, encode } from "./message.mjs";
import { adversarial } from "./relaxed.mjs";
import * as sessions from "./sessions.mjs";

/** The commands; `head` is plain data, `parts` are bytes. Each returns { head, parts } or nothing. */
class Session {
  constructor(host, modules) {
    this.host = host;
    this.modules = modules;
    this.library = null;
    this.caches = new Map();
    this.handles = 0;
  }

  features() {
    return { head: { features: this.host.features() } };
  }

  async load({ variant, memoryLimit }) {
    this.library = await this.host.load({ modules: this.modules, variant, memoryLimit });
    const { variants, buildId, digest: module, exact, report } = this.library;
    return { head: { variants, buildId, module, exact, report } };
  }

  memory() {
    return { head: this.library.memoryStats() };
  }

  supports({ spec }) {
    return { head: this.library.supports(spec) };
  }

  prepare({ spec }) {
    return this.#keep(this.library.prepare(spec));
  }

  restore({ spec }, [dump]) {
    return this.#keep(this.library.restore(spec, dump));
  }

  fork({ cache }) {
    return this.#keep(this.#cache(cache).fork());
  }

  append({ cache, layer }, [keys, values]) {
    this.#cache(cache).append(layer, floats(keys), floats(values));
  }

  attend({ cache, layer }, [q]) {
    return { parts: [this.#cache(cache).attend(layer, floats(q))] };
  }

  scores({ cache, layer }, [q]) {
    return { parts: [this.#cache(cache).scores(layer, floats(q))] };
  }

  pages({ cache, layer }) {
    return { parts: this.#cache(cache).pages(layer) };
  }

  dump({ cache }) {
    return { parts: [this.#cache(cache).dump()] };
  }

  truncate({ cache, n }) {
    this.#cache(cache).truncate(n);
  }

  reset({ cache }) {
    this.#cache(cache).reset();
  }

  lengths({ cache }) {
    return { head: { lengths: this.#cache(cache).lengths } };
  }

  stats({ cache }) {
    return { head: this.#cache(cache).stats() };
  }

  close({ cache }) {
    this.#cache(cache).close();
    this.caches.delete(cache);
  }

  clock() {
    return { head: { step: clockStep() } };
  }

  /** One sample of attending again and again, and the output. */
  time({ cache, layer, step, least }, [bytes]) {
    const [target, q] = [this.#cache(cache), floats(bytes)];
    const out = new Float32Array(q.length);
    return { head: sample(() => target.attend(layer, q, out), step, least), parts: [out] };
  }

  /** Parts: keys, values and queries of each model in turn. */
  sessions({ models, count }, parts) {
    const each = models.map((model, i) => {
      const [keys, values, q] = parts.slice(3 * i, 3 * i + 3).map(floats);
      return { ...model, inputs: { keys, values, q } };
    });
    const { memory, outputs } = sessions.run(this.library, each, count);
    return { head: { memory }, parts: outputs };
  }

  relaxed() {
    return { head: adversarial(this.host.relaxedDot, this.host.exactDot) };
  }

  #keep(cache) {
    this.handles += 1;
    this.caches.set(this.handles, cache);
    return { head: { cache: this.handles } };
  }

  #cache(handle) {
    const cache = this.caches.get(handle);
    if (!cache) throw new this.host.StateError(`no cache ${handle}; it was closed`);
    return cache;
  }
}

function floats(bytes) {
  return new Float32Array(bytes.buffer);
}

async function answer(session, { head, parts }) {
  try {
    for (const [i, part] of parts.entries())
      if ((await digest(part)) !== head.digests[i]) throw new Error(`part ${i} is not what was sent`);
    const { head: fields = {}, parts: out = [] } = (await session[head.command](head, parts)) ?? {};
    return encode({ ok: true, ...fields }, out);
  } catch (error) {
    const { name, message, stack } = error;
    return encode({ ok: false, name, message, stack, ...error, library: undefined });
  }
}

/** Asks the server for commands and answers them, until it says stop. */
export async function serve(server, host, modules, engine) {
  const session = new Session(host, modules);
  let reply = encode({ ok: true, engine });
  for (;;) {
    const response = await fetch(new URL("next", server), { method: "POST", body: reply });
    const message = decode(await response.arrayBuffer());
    if (message.head.command === "stop") return;
    reply = message.head.command === "idle" ? encode({ idle: true }) : await answer(session, message);
  }
}
