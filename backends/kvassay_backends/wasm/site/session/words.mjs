// Figures in words.

const UNITS = ["B", "KiB", "MiB", "GiB"];

export const spell = {
  /** 1536 as "1.5 KiB". */
  bytes(count) {
    let unit = 0;
    let value = count;
    while (value >= 1024 && unit < UNITS.length - 1) {
      value /= 1024;
      unit++;
    }
    return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${UNITS[unit]}`;
  },

  count: (number) => number.toLocaleString("en"),

  /** Tokens a second since `started` milliseconds. */
  rate(tokens, started, ended = performance.now()) {
    const seconds = (ended - started) / 1000;
    return seconds > 0 ? `${spell.count(Number((tokens / seconds).toPrecision(3)))} tokens/s` : "once";
  },
};

export function sameBytes(a, b) {
  return a.length === b.length && a.every((byte, i) => byte === b[i]);
}
