// The panel of the suites: one button, progress, a verdict, and the evidence under it.

import { byId, chip, html, table } from "./dom.mjs";
import { spell } from "../session/words.mjs";
import { cells, lines } from "./plots.mjs";
import { Caller } from "./rpc.mjs";

const SUITES = { parity: "Parity with golden bytes", memory: "Memory over sessions", speed: "Speed" };
const TITLES = { pass: "Pass", reject: "Reject", "not measured": "Not measured" };

export class AssayPanel {
  constructor(base) {
    this.base = base;
    byId("run").addEventListener("click", () => this.run());
  }

  async run() {
    this.records = [];
    this.variants = [];
    byId("run").disabled = true;
    byId("results").replaceChildren();
    this.#show("running", "Running", "The suites run in a worker; the page stays usable.");
    this.#startProgress();
    const worker = new Caller(new URL("assay/worker.mjs", this.base));
    try {
      const { verdict, outcomes } = await worker.call("run", null, (event) => this.#note(event));
      this.#show(verdict, `${TITLES[verdict]} on this device`, this.#summary(outcomes));
      this.#results(outcomes);
    } catch (error) {
      this.#show("reject", "The suites could not run", `${error.name}: ${error.message}`);
    } finally {
      worker.stop();
      byId("run").disabled = false;
      byId("run").textContent = "Run again";
      byId("progress").hidden = true;
    }
  }

  #show(state, title, note) {
    byId("verdict-card").className = `verdict ${state.replaceAll(" ", "-")}`;
    byId("verdict").textContent = title;
    byId("verdict-note").textContent = note;
  }

  #startProgress() {
    const bars = Object.entries(SUITES).map(([suite, label]) =>
      html("label", {}, label, html("progress", { id: `progress-${suite}`, max: 1, value: 0 })),
    );
    byId("progress").replaceChildren(...bars);
    byId("progress").hidden = false;
  }

  #note({ variants, record, suite, done, all }) {
    if (variants) this.variants = variants;
    if (record) this.records.push(record);
    if (suite) byId(`progress-${suite}`).value = done / all;
  }

  #of(check) {
    return this.records.filter((record) => record.check === check);
  }

  #summary(outcomes) {
    const parity = [...this.#of("parity.mismatches"), ...this.#of("parity.cross_read")];
    const bytes = parity.reduce((sum, { comparisons }) => sum + comparisons, 0);
    const wrong = parity.reduce((sum, { value }) => sum + value, 0);
    const sessions = this.#of("wasm.growth_events");
    const growths = sessions.reduce((sum, { value }) => sum + value, 0);
    const names = outcomes.map(({ variant }) => variant).join(", ") || "no variant";
    return (
      `${names}: ${spell.count(bytes)} bytes compared, ${spell.count(wrong)} differ; ` +
      `${sessions.length} \u00d7 100 sessions, ${growths} growths after the first.`
    );
  }

  #results(outcomes) {
    const results = [
      html("h3", {}, "Rules"),
      this.#rules(outcomes),
      this.#faults(),
      html("div", { class: "plots" }, this.#parityPlot(), this.#memoryPlot(), ...this.#speedPlots()),
      html("h3", {}, "Variants"),
      this.#variantTable(),
    ];
    byId("results").replaceChildren(...results.filter((part) => part !== null));
  }

  #rules(outcomes) {
    const [first] = outcomes;
    const rows = (first?.rules ?? []).map(({ rule }, number) => [
      html("span", { title: rule.reason }, rule.title),
      `${rule.statistic} \u2264 ${rule.maximum} ${rule.unit}`,
      ...outcomes.map(({ rules }) => {
        const { state, value, comparisons } = rules[number];
        const of = `${value ?? "nothing"} of ${spell.count(comparisons)}`;
        return html("span", {}, chip(state), " ", html("small", {}, of));
      }),
    ]);
    return table(["rule", "threshold", ...outcomes.map(({ variant }) => variant)], rows);
  }

  /** The first place of each fault, where there is one. */
  #faults() {
    const faults = this.records.filter(({ first, value }) => first && value > 0);
    if (faults.length === 0) return null;
    const rows = faults.slice(0, 20).map(({ variant, check, subject, first }) => [variant, check, subject, first]);
    return html("div", { id: "faults" }, html("h3", {}, "Evidence"), table(["variant", "check", "about", "first place"], rows));
  }

  #parityPlot() {
    const records = this.#of("parity.mismatches").filter(({ subject }) => !subject.startsWith("relaxed"));
    const columns = [...new Set(records.map(({ subject }) => subject))];
    const rows = [...new Set(records.map(({ variant }) => variant))].map((variant) => ({
      label: variant,
      states: columns.map((name) => {
        const found = records.find((record) => record.variant === variant && record.subject === name);
        if (!found) return { state: "not-measured", told: "not measured" };
        const told = `${found.value} of ${spell.count(found.comparisons)} bytes differ`;
        return { state: found.value ? "reject" : "pass", told };
      }),
    }));
    const unit = `${columns.length} golden caches a variant: dump, scores and outputs`;
    return cells(rows, columns, { title: "Same bits as the reference", unit });
  }

  #memoryPlot() {
    const series = this.#of("wasm.growth_events").map(({ variant, series: sessions }) => ({
      label: variant,
      points: sessions.map(({ pages }, i) => [i + 1, pages / 16]),
    }));
    if (series.length === 0) return null;
    const about = { title: "Linear memory over sessions", x: "session", y: "MiB", format: (v) => v.toFixed(1) };
    return lines(series, about);
  }

  #speedPlots() {
    const records = this.#of("speed.attend");
    return [...new Set(records.map(({ subject }) => subject))].map((name) => {
      const mine = records.filter(({ subject }) => subject === name);
      const series = [...new Set(mine.map(({ variant }) => variant))].map((variant) => ({
        label: variant,
        points: mine.filter((record) => record.variant === variant).map(({ context, value }) => [context, value]),
      }));
      const xs = [...new Set(mine.map(({ context }) => context))];
      const y = `ns a token, 4 query heads, d = 128; clock step ${(mine[0].clock_ms * 1000).toPrecision(3)} \u00b5s`;
      return lines(series, { title: `Attention, ${name}`, x: "context", y, xs, log: true, format: (v) => String(Math.round(v)) });
    });
  }

  #variantTable() {
    const longest = Math.max(0, ...this.#of("speed.attend").map(({ context }) => context));
    const rows = this.variants.map(({ variant, status, reason, digest, build }) => {
      const speed = this.#of("speed.attend").find(
        (record) => record.variant === variant && record.subject === "turbo" && record.context === longest,
      );
      return [
        variant,
        chip(status),
        reason || "-",
        speed ? `${speed.value.toFixed(1)} ns a token, samples within ${speed.spread.toFixed(1)} \u00d7` : "-",
        html("code", {}, digest ? digest.slice(0, 12) : "-"),
        html("code", {}, build ? build.slice(0, 12) : "-"),
      ];
    });
    return table(["variant", "status", "reason", longest ? `turbo, ${longest} tokens` : "speed", "module SHA-256", "build"], rows);
  }
}
