// Plots as SVG, drawn by hand. Colours come from the style sheet: series n has the class `s<n>`.

import { html, svg } from "./dom.mjs";

const WIDTH = 460;
const HEIGHT = 220;
const EDGE = { left: 58, right: 14, top: 12, bottom: 34 };

/** From 0 to at least the largest value, in about four round steps. */
function linear(values) {
  const most = Math.max(...values, 0) || 1;
  const power = 10 ** Math.floor(Math.log10(most / 4));
  const step = power * [1, 2, 2.5, 5, 10].find((factor) => factor * power >= most / 4);
  const levels = Array.from({ length: Math.ceil(most / step - 1e-9) + 1 }, (_, i) => i * step);
  return { levels, height: (value) => value / levels.at(-1) };
}

/** Powers of ten around positive values. */
function logarithmic(values) {
  const low = Math.floor(Math.log10(Math.min(...values)));
  const high = Math.max(low + 1, Math.ceil(Math.log10(Math.max(...values))));
  const levels = Array.from({ length: high - low + 1 }, (_, i) => 10 ** (low + i));
  return { levels, height: (value) => (Math.log10(value) - low) / (high - low) };
}

const text = (x, y, content, anchor = "middle") => svg("text", { x, y, "text-anchor": anchor }, content);

/**
 * Lines over a common axis.
 * @param {{label: string, points: [number, number][]}[]} series
 * @param {{title: string, x: string, y: string, format?: (v: number) => string, xs?: number[], log?: boolean}} about
 *   `xs`: marks of the x axis; `log`: of the y axis
 */
export function lines(series, { title, x, y, format = String, xs, log = false }) {
  const points = series.flatMap((one) => one.points);
  const left = Math.min(...points.map(([at]) => at), ...(xs ?? []));
  const right = Math.max(...points.map(([at]) => at), left + 1);
  const { levels, height } = (log ? logarithmic : linear)(points.map(([, value]) => value));
  const toX = (at) => EDGE.left + ((at - left) / (right - left)) * (WIDTH - EDGE.left - EDGE.right);
  const toY = (value) => HEIGHT - EDGE.bottom - height(value) * (HEIGHT - EDGE.top - EDGE.bottom);
  const grid = levels.flatMap((level) => [
    svg("line", { class: "grid", x1: EDGE.left, x2: WIDTH - EDGE.right, y1: toY(level), y2: toY(level) }),
    text(EDGE.left - 8, toY(level) + 4, format(level), "end"),
  ]);
  const marks = (xs ?? [left, right]).map((at) => text(toX(at), HEIGHT - EDGE.bottom + 16, String(at)));
  const curves = series.map((one, number) => {
    const path = one.points.map(([at, value]) => `${toX(at)},${toY(value)}`).join(" ");
    const dots = one.points.length > 12 ? [] : one.points.map(([at, value]) =>
      svg("circle", { cx: toX(at), cy: toY(value), r: 3 }, svg("title", {}, `${one.label}, ${x} ${at}: ${format(value)}`)),
    );
    return svg("g", { class: `s${number}` }, svg("polyline", { points: path }), ...dots);
  });
  const label = text((EDGE.left + WIDTH) / 2, HEIGHT - 4, x);
  return figure(title, y, series, svg("g", {}, ...grid, ...marks, label, ...curves));
}

function figure(title, unit, series, drawing) {
  const key = series.map(({ label }, number) => html("span", { class: `key s${number}` }, label));
  return html(
    "figure",
    {},
    html("figcaption", {}, html("strong", {}, title), html("span", { class: "unit" }, unit)),
    svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title}, ${unit}` }, drawing),
    html("div", { class: "keys" }, ...key),
  );
}

/** A grid of cells, one row a series; each cell has a state (its class) and a title. */
export function cells(rows, columns, { title, unit }) {
  const size = 22;
  const left = 76;
  const width = left + columns.length * size;
  const drawn = rows.flatMap(({ label, states }, row) => [
    text(left - 8, row * size + 15, label, "end"),
    ...states.map(({ state, told }, column) =>
      svg(
        "rect",
        { class: `cell ${state}`, x: left + column * size + 1, y: row * size + 1, width: size - 3, height: size - 3, rx: 3 },
        svg("title", {}, `${label}, ${columns[column]}: ${told}`),
      ),
    ),
  ]);
  const height = rows.length * size + 2;
  return html(
    "figure",
    { class: "wide" },
    html("figcaption", {}, html("strong", {}, title), html("span", { class: "unit" }, unit)),
    svg("svg", { viewBox: `0 0 ${width} ${height}`, width, role: "img", "aria-label": title, class: "cells" }, ...drawn),
  );
}

/** One bar of parts; `parts` are [label, value] and share `most`. */
export function stack(parts, most, format) {
  const shown = parts.filter(([, value]) => value > 0);
  let at = 0;
  const drawn = shown.map(([label, value], number) => {
    const part = svg(
      "rect",
      { class: `s${number}`, x: at, y: 0, width: Math.max((value / most) * 1000, 0), height: 28 },
      svg("title", {}, `${label}: ${format(value)}`),
    );
    at += (value / most) * 1000;
    return part;
  });
  const key = shown.map(([label, value], number) => html("span", { class: `key s${number}` }, `${label} ${format(value)}`));
  return html(
    "div",
    { class: "stack" },
    svg("svg", { viewBox: "0 0 1000 28", preserveAspectRatio: "none", role: "img", "aria-label": "Bytes held by part" }, ...drawn),
    html("div", { class: "keys" }, ...key),
  );
}
