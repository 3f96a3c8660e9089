// A conversation with a model whose cache lives in WebAssembly. Every action returns what it did, in words.

import { IdentityError, SpanError, TruncateError, load, preset } from "../host/kvassay.mjs";
import { sha256Hex } from "../host/src/sha256.mjs";
import { Decoder, greedy } from "../model/decoder.mjs";
import { cacheShape } from "../model/shape.mjs";
import { Chat } from "./chat.mjs";
import { sameBytes, spell } from "./words.mjs";

const MEMORY_LIMIT = 2 ** 31; // bytes of linear memory, model included

export class Session {
  /**
   * @param {(library, name: string, progress) => Promise<object>} loadModel
   */
  constructor(loadModel, memoryLimit = MEMORY_LIMIT) {
    Object.assign(this, { loadModel, memoryLimit });
    this.report = () => {}; // gets {loading}, {reading}, {token} while an action runs
    this.settings = null;
    this.clear();
  }

  clear() {
    this.tokens = []; // held by the cache
    this.pending = []; // said by the model, not yet read by it
    this.turns = [];
    this.stopped = false;
  }

  /** Another model, preset, variant or span. The old cache is offered to the new one, which takes it or says why not. */
  async configure(settings) {
    const before = this.settings;
    const kept = this.tokens.length && !this.library.fault ? this.cache.dump() : null;
    try {
      await this.#open(before, settings);
    } catch (error) {
      if (before) await this.#goBack(before, kept);
      throw error;
    }
    this.cache?.close();
    this.settings = { ...settings };
    if (kept === null) return this.#begin(`${this.model.config.name} is ready with an empty cache.`);
    return this.#handOver(before, kept);
  }

  async #open(before, { variant, model }) {
    if (!before || before.variant !== variant || this.library.fault) {
      const library = await load({ variant: variant || undefined, memoryLimit: this.memoryLimit });
      this.library?.close();
      Object.assign(this, { library, cache: null, decoder: null, model: null });
    } else if (before.model === model) return;
    this.cache?.close();
    this.decoder?.free();
    this.model?.block.free();
    this.decoder = this.model = null;
    this.model = await this.loadModel(this.library, model, (loaded, total) => this.report({ loading: loaded / total }));
    this.decoder = new Decoder(this.library, this.model);
    this.chat = new Chat(this.model.tokenizer);
  }

  /** After a change that failed: the session as it was. */
  async #goBack(before, kept) {
    if (this.model) return; // nothing was touched
    await this.#open(null, before);
    if (kept) this.cache = this.library.restore(this.spec, kept);
    else this.#begin("");
  }

  get spec() {
    const { preset: name, span } = this.settings;
    return preset(name, { ...cacheShape(this.model.config), span: span || null });
  }

  #begin(note) {
    this.clear();
    this.cache = this.library.prepare(this.spec);
    return { note };
  }

  /** Offers the dump of the old cache to a new one. */
  async #handOver(before, dump) {
    try {
      this.cache = this.library.restore(this.spec, dump);
      return { note: `Same identity: ${this.tokens.length} tokens carried over, ${spell.bytes(dump.length)}, bit for bit.` };
    } catch (error) {
      if (!(error instanceof IdentityError)) throw error;
      const refusal = { refused: `The old cache was refused: ${error.message}.`, field: error.field };
      if (before.model !== this.settings.model) {
        return { ...refusal, ...this.#begin("Started clean: another model's tokens mean nothing here.") };
      }
      this.cache = this.library.prepare(this.spec);
      const tokens = this.tokens;
      await this.#read(tokens, []);
      return { ...refusal, note: `The ${tokens.length} tokens were computed again.` };
    }
  }

  /** A clean session: the cache is closed, another one made. */
  newSession() {
    if (this.library.fault) return this.configure(this.settings);
    this.cache.close();
    return this.#begin("The old cache was closed, its memory went back to the arena, and a new one was made.");
  }

  /** The same cache, emptied; compared with one newly made. */
  reset() {
    this.cache.reset();
    this.clear();
    const fresh = this.library.prepare(this.spec);
    const same = sameBytes(this.cache.dump(), fresh.dump());
    fresh.close();
    return same
      ? { note: "Emptied; byte for byte the same as a newly made cache, and its memory is kept." }
      : { refused: "The emptied cache differs from a newly made one.", field: "bytes" };
  }

  /** Forgets the last turn. */
  async forget() {
    const turn = this.turns.pop();
    if (turn === undefined) return { note: "There is no turn to forget." };
    this.pending = turn.pending;
    return this.truncate(turn.start);
  }

  /** Cuts the cache to n tokens; where fp16 data for that no longer exists, from an allowed length on. */
  async truncate(n) {
    const tokens = this.tokens.slice(0, n);
    try {
      this.cache.truncate(n);
      this.tokens = tokens;
      return { note: `Cut to ${n} tokens.` };
    } catch (error) {
      if (!(error instanceof TruncateError || error instanceof SpanError)) throw error;
      const from = Math.max(0, ...(error.allowed ?? []).filter((length) => length < n));
      if (from > 0) this.cache.truncate(from);
      else this.cache.reset();
      await this.#read(tokens.slice(from), tokens.slice(0, from));
      return {
        refused: `${error.message}.`,
        note: `Cut to ${from} instead, then ${n - from} tokens were computed again up to ${n}.`,
      };
    }
  }

  /** Whether the context as it was reused equals, bit for bit, one computed at once in a new cache. */
  async check() {
    const fresh = this.library.prepare(this.spec);
    try {
      if (this.tokens.length) await this.decoder.forward(this.tokens, fresh, (done) => this.#breathe({ reading: done }));
      const [mine, other] = [this.cache.dump(), fresh.dump()];
      if (sameBytes(mine, other)) {
        return { note: `Identical: all ${spell.bytes(mine.length)} of ${this.tokens.length} tokens, computed anew.` };
      }
      return { refused: `The reused cache differs from one computed anew (${mine.length} and ${other.length} bytes).` };
    } finally {
      fresh.close();
    }
  }

  /** Appends a text without an answer. */
  async feed(text) {
    const ids = this.model.tokenizer.encode(text).slice(0, this.model.config.context - this.tokens.length - 1);
    if (ids.length === 0) return { note: "The context is full: forget a turn or start a new session." };
    const read = [...this.pending, ...ids];
    const started = performance.now();
    await this.#asTurn(() => this.#extend(read));
    return { note: `Read ${read.length} tokens of sample text at ${spell.rate(read.length, started)}.` };
  }

  /** One turn: reads the text, answers greedily. `reuse` false computes the whole context again first. */
  async say(text, { limit, reuse }) {
    this.stopped = false;
    const ids = [...this.pending, ...this.chat.turn(text, this.turns.length === 0)];
    if (this.tokens.length + ids.length + limit > this.model.config.context) {
      return { refused: "The context is full: forget a turn or start a new session." };
    }
    return this.#asTurn(() => this.#turn(ids, limit, reuse));
  }

  /** Counts what `run` reads as a turn; one of which nothing could be read leaves no trace. */
  async #asTurn(run) {
    const turn = { start: this.tokens.length, pending: this.pending };
    this.turns.push(turn);
    this.pending = [];
    try {
      return await run();
    } catch (error) {
      if (this.tokens.length <= turn.start) this.turns = this.turns.filter((other) => other !== turn);
      if (this.tokens.length === turn.start) this.pending = turn.pending;
      throw error;
    }
  }

  async #turn(ids, limit, reuse) {
    const held = this.tokens;
    if (!reuse) {
      this.cache.reset();
      this.tokens = [];
    }
    const read = reuse ? ids : [...held, ...ids];
    const started = performance.now();
    const answer = await this.#answer(await this.#extend(read), limit);
    const how = reuse ? `${held.length} tokens were reused` : "nothing was reused";
    const reading = `read ${read.length} at ${spell.rate(read.length, started, answer.began)}`;
    return { note: `${how}, ${reading}; wrote ${answer.count} at ${spell.rate(answer.count, answer.began)}.` };
  }

  /** What the page shows after each action. */
  state() {
    const { config } = this.model;
    const { layers, kv_heads, head_dim } = config;
    const { parts, allocated, ran } = this.cache.stats();
    return {
      settings: this.settings,
      model: config,
      variant: this.library.variant,
      tokens: this.cache.length,
      turns: this.turns.length,
      pages: this.library.raw("kv_cache_page_count", this.cache.pointer, 0),
      parts,
      held: allocated,
      fp16: 2 * layers * kv_heads * head_dim * 2 * this.cache.length,
      memory: this.library.memoryStats(),
      identity: sha256Hex(new TextEncoder().encode(this.cache.identityText)).slice(0, 12),
      ran,
    };
  }

  stop() {
    this.stopped = true;
  }

  async #answer(first, limit) {
    const { tokenizer } = this.model;
    const began = performance.now();
    const words = tokenizer.stream();
    const said = [];
    let unread = [];
    let logits = first;
    while (said.length < limit && !this.stopped) {
      const id = greedy(logits);
      said.push(id);
      unread = [id];
      if (id === tokenizer.eos) break;
      this.report({ token: words.next(id) });
      if (said.length === limit) break;
      logits = await this.#extend(unread);
      unread = [];
    }
    this.report({ token: words.end() });
    this.pending = [...unread, ...this.chat.close(said)];
    return { began, count: said.length };
  }

  async #extend(tokens) {
    return this.#read(tokens, this.tokens);
  }

  /** Reads tokens after those held; on failure the cache keeps what it had. */
  async #read(tokens, held) {
    try {
      const logits = await this.decoder.forward(tokens, this.cache, (done) => this.#breathe({ reading: done }));
      this.tokens = [...held, ...tokens];
      return logits;
    } catch (error) {
      this.#restoreTo(held);
      throw error;
    }
  }

  #restoreTo(held) {
    try {
      this.cache.truncate(held.length);
    } catch {
      held = [];
      this.cache.reset();
    }
    this.tokens = held;
    this.pending = [];
    this.turns = this.turns.filter(({ start }) => start < held.length);
  }

  /** Lets messages in, so that a person can stop the model. */
  #breathe(event) {
    this.report(event);
    const { port1, port2 } = new MessageChannel();
    return new Promise((resolve) => {
      port1.onmessage = () => {
        port1.close();
        resolve();
      };
      port2.postMessage(0);
    });
  }
}
