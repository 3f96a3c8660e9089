// Making elements.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== undefined && child !== null));
  return element;
}

export const html = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);
export const byId = (id) => document.getElementById(id);

/** A table: `head` texts, `rows` of cells (texts or elements). */
export function table(head, rows) {
  const cell = (content) => html("td", {}, content);
  return html(
    "div",
    { class: "scroll", tabindex: "0" }, // by keyboard too
    html(
      "table",
      {},
      html("thead", {}, html("tr", {}, ...head.map((text) => html("th", { scope: "col" }, text)))),
      html("tbody", {}, ...rows.map((cells) => html("tr", {}, ...cells.map(cell)))),
    ),
  );
}

/** A state with its colour: pass, reject, not measured, or another word without one. */
export const chip = (state, text = state) =>
  html("span", { class: `chip ${state.replaceAll(" ", "-")}` }, text);
