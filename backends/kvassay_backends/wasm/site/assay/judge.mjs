// The rules of the gate that this page can measure, applied to its records.

/** Checks of this page; the thresholds are the gate's own, from rules.json. */
const CHECKS = ["run.errors", "parity.mismatches", "parity.cross_read", "wasm.growth_events"];
const STATISTICS = {
  sum: (values) => values.reduce((a, b) => a + b, 0),
  max: (values) => Math.max(...values),
  min: (values) => Math.min(...values),
};
const WORST = ["reject", "not measured", "pass"];

function state(rule, records) {
  const measured = records.filter(({ comparisons }) => comparisons > 0);
  if (measured.length === 0) return { rule, state: "not measured", value: null, comparisons: 0 };
  const value = STATISTICS[rule.statistic](measured.map((record) => record.value));
  const within = value <= (rule.maximum ?? Infinity) && value >= (rule.minimum ?? -Infinity);
  const complete = measured.length === records.length;
  const comparisons = measured.reduce((sum, record) => sum + record.comparisons, 0);
  return { rule, state: !within ? "reject" : complete ? "pass" : "not measured", value, comparisons };
}

/** Outcomes by variant, and the verdict: the worst of them, "not measured" where nothing ran. */
export function judge(rules, records, variants) {
  const known = rules.filter(({ name }) => CHECKS.includes(name));
  const missing = CHECKS.filter((name) => !known.some((rule) => rule.name === name));
  if (missing.length) throw new Error(`rules.json has no rule ${missing.join(", ")}`);
  const outcomes = variants.map((variant) => ({
    variant,
    rules: known.map((rule) =>
      state(rule, records.filter((record) => record.check === rule.check && record.variant === variant)),
    ),
  }));
  const states = outcomes.flatMap(({ rules: all }) => all.map((outcome) => outcome.state));
  return { verdict: WORST.find((name) => states.includes(name)) ?? "not measured", outcomes };
}
