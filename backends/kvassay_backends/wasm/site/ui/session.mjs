// The panel of the session: choices, a conversation, buttons, and what each did to memory and identity.

import { PRESETS } from "../host/kvassay.mjs";
import { listModels } from "../session/models.mjs";
import { spell } from "../session/words.mjs";
import { byId, chip, html, table } from "./dom.mjs";
import { lines, stack } from "./plots.mjs";
import { Caller } from "./rpc.mjs";
import { SAMPLE } from "./sample.mjs";

const CHOICES = ["model", "preset", "variant", "span"];
const BUTTONS = ["send", "new", "reset", "forget", "feed", "check"];
const HISTORY_SHOWN = 12;

export class SessionPanel {
  constructor(base) {
    this.base = base;
    this.history = [];
    this.worker = new Caller(new URL("session/worker.mjs", base));
    for (const choice of CHOICES) byId(choice).addEventListener("change", () => this.#choose(choice));
    byId("say").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#say();
    });
    byId("text").addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        this.#say();
      }
    });
    byId("stop").addEventListener("click", () => this.worker.call("stop"));
    const plain = { new: "newSession", reset: "reset", forget: "forget", check: "check" };
    for (const [id, name] of Object.entries(plain)) {
      byId(id).addEventListener("click", () => this.#act(byId(id).textContent, name));
    }
    byId("feed").addEventListener("click", () => this.#feed());
  }

  async open() {
    this.models = await listModels(this.base);
    byId("model").replaceChildren(
      ...this.models.map(({ name, label, bytes }) =>
        html("option", { value: name }, bytes ? `${label} (${spell.bytes(bytes)})` : label),
      ),
    );
    await this.#act("Open", "open", this.#settings());
  }

  #settings() {
    const [model, preset, variant] = CHOICES.map((choice) => byId(choice).value);
    return { model, preset, variant, span: Number(byId("span").value) };
  }

  async #choose(choice) {
    const label = byId(choice).closest("label").firstChild.textContent.trim();
    const chosen = byId(choice).selectedOptions[0].textContent;
    const done = await this.#act(`${label}: ${chosen}`, this.state ? "configure" : "open", this.#settings());
    if (!done && this.state) for (const name of CHOICES) byId(name).value = String(this.state.settings[name]);
  }

  async #say() {
    const text = byId("text").value.trim();
    if (!text || byId("send").disabled) return;
    byId("text").value = "";
    const answer = this.#message(text);
    const argument = { text, limit: Number(byId("limit").value), reuse: byId("reuse").checked };
    await this.#act("Send", "say", argument, (token) => answer.append(token));
    if (!answer.textContent) answer.textContent = "(no answer)";
    byId("text").focus();
  }

  async #feed() {
    const answer = this.#message("(sample text)");
    const done = await this.#act("Feed sample text", "feed", { text: SAMPLE });
    answer.textContent = done ? "(read, not answered)" : "(refused)";
  }

  /** Adds a turn to the conversation; returns the element of the answer. */
  #message(text) {
    const answer = html("p", { class: "model" });
    const turn = html("div", { class: "turn" }, html("p", { class: "person" }, text), answer);
    byId("log").append(turn);
    byId("log").scrollTop = byId("log").scrollHeight;
    return answer;
  }

  /** Calls the worker, with everything else disabled meanwhile; false where it failed. */
  async #act(label, name, argument, onToken = () => {}) {
    this.#busy(true, name === "say");
    byId("outcome").textContent = `${label} \u2026`;
    try {
      const { state, ...outcome } = await this.worker.call(name, argument, (event) => this.#progress(event, onToken));
      this.#note(label, outcome, state);
      this.#syncLog(state.turns);
      return true;
    } catch (error) {
      const state = this.state ? await this.worker.call("state").catch(() => null) : null;
      this.#note(label, { error: `${error.name}: ${error.message}` }, state);
      if (state) this.#syncLog(state.turns);
      return false;
    } finally {
      this.#busy(false, false);
    }
  }

  #busy(busy, stoppable) {
    for (const id of [...BUTTONS, ...CHOICES]) byId(id).disabled = busy;
    byId("stop").disabled = !stoppable;
    byId("session").setAttribute("aria-busy", String(busy));
  }

  #progress({ loading, reading, token }, onToken) {
    if (loading !== undefined) byId("outcome").textContent = `Loading the model: ${Math.round(100 * loading)} %`;
    if (reading !== undefined && reading > 1) byId("outcome").textContent = `Reading: ${reading} tokens`;
    if (token !== undefined) {
      onToken(token);
      byId("log").scrollTop = byId("log").scrollHeight;
    }
  }

  /** The conversation shows the turns that the session has. */
  #syncLog(turns) {
    while (byId("log").children.length > turns) byId("log").lastChild.remove();
  }

  #note(label, { note, refused, field, error }, state) {
    const told = html(
      "span",
      {},
      error ? html("span", {}, chip("reject", "error"), ` ${error} `) : null,
      refused ? html("span", {}, chip("refused", field ? `refused: ${field}` : "refused"), ` ${refused} `) : null,
      note ?? null,
    );
    byId("outcome").replaceChildren(told);
    if (state === null) return;
    this.history.push({ label, told: told.cloneNode(true), before: this.state, state });
    this.state = state;
    this.#facts();
    this.#table();
  }

  #facts() {
    const { tokens, pages, parts, held, fp16, memory, identity, variant, ran, model } = this.state;
    const ratio = tokens ? `${Math.round((100 * held) / fp16)} % of fp16` : "empty";
    const fact = (name, value, more) =>
      html("div", { class: "fact" }, html("dt", {}, name), html("dd", {}, value, html("small", {}, more)));
    const most = Math.max(held, fp16);
    byId("facts").replaceChildren(
      html(
        "dl",
        {},
        fact("Tokens held", spell.count(tokens), `${pages} live pages a layer`),
        fact("Bytes held", spell.bytes(held), ratio),
        fact("Linear memory", spell.bytes(memory.bytes), `${memory.growths} growths, model included`),
        fact("Identity", html("code", {}, identity), `${model.name}, ${ran.join() || variant}`),
      ),
      stack(Object.entries(parts), most, spell.bytes),
      this.#plot(),
    );
  }

  #plot() {
    const points = (pick) => this.history.map(({ state }, i) => [i, pick(state) / 1024]);
    const series = [
      { label: this.#presets(), points: points(({ held }) => held) },
      { label: "fp16, tokens alone", points: points(({ fp16 }) => fp16) },
    ];
    const about = { title: "Bytes held after each action", x: "action", y: "KiB", format: (v) => spell.count(v) };
    return lines(series, about);
  }

  #presets() {
    const used = new Set(this.history.map(({ state }) => state.settings.preset));
    return `this cache (${Object.keys(PRESETS).filter((name) => used.has(name)).join(", ")})`;
  }

  #table() {
    const change = (before, after, format) => {
      const now = format(after);
      return before === undefined || format(before) === now ? now : `${format(before)} \u2192 ${now}`;
    };
    const rows = this.history.slice(-HISTORY_SHOWN).reverse().map(({ label, told, before, state }) => [
      label,
      change(before?.tokens, state.tokens, spell.count),
      change(before?.held, state.held, spell.bytes),
      change(before?.memory.bytes, state.memory.bytes, spell.bytes),
      html("code", { class: before && before.identity !== state.identity ? "changed" : null }, state.identity),
      told,
    ]);
    const head = ["action", "tokens", "bytes held", "linear memory", "identity", "effect"];
    byId("history").replaceChildren(table(head, rows));
  }
}
