// Elements of the page. Texts become text nodes, never markup, and their control characters signs: what a job, a user or
// a node is called cannot change a page.

import { visible } from "./format.js";

/** An element: `el("p", {class: "note"}, "text", child)`. Attributes beginning with "on" are listeners. */
export function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : visible(value));
  }
  made.append(...nodes(children));
  return made;
}

const nodes = (children) => children.flat().filter((child) => child !== null && child !== undefined && child !== false)
  .map((child) => (child instanceof Node ? child : visible(child)));

/** Replace all that is inside `parent`. */
export function fill(parent, ...children) {
  parent.replaceChildren(...nodes(children));
  return parent;
}

/** Set a text only if it is another one: an equal one would take away a reader's selection. */
export function setText(element, text) {
  const shown = visible(text);
  if (element.textContent !== shown) element.textContent = shown;
}

/** A labelled choice; `options` are [value, text] pairs. */
export function choice(label, options, chosen, change) {
  const select = el("select", { onchange: () => change(select.value) },
    options.map(([value, text]) => el("option", { value, selected: value === chosen }, text)));
  return el("label", { class: "choice" }, el("span", {}, label), select);
}

/** Rows of name and value. */
export function facts(pairs) {
  return el("dl", { class: "facts" },
    pairs.filter(([, value]) => value !== null && value !== undefined && value !== "")
      .flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

/** A table of few rows; numbers are given as {number: text}, sentences, which may take several lines, as {sentence: text}. */
export function smallTable(header, rows) {
  return el("div", { class: "scroll" }, el("table", {},
    el("thead", {}, el("tr", {}, header.map((name) => el("th", { scope: "col" }, name)))),
    el("tbody", {}, rows.map(tableRow))));
}

export const tableRow = (values) => el("tr", {}, values.map((value) => {
  if (value instanceof Node || value === null || typeof value !== "object") return el("td", {}, value ?? "");
  return "number" in value ? el("td", { class: "number" }, value.number) : el("td", { class: "wide" }, value.sentence);
}));

/** A question before what cannot be undone. */
export function confirmed(question, yes, no) {
  return new Promise((resolve) => {
    const dialog = el("dialog", { onclose: () => { dialog.remove(); resolve(dialog.returnValue === "yes"); } }, el("p", {}, question),
      el("form", { method: "dialog", class: "controls" }, el("button", { value: "yes", class: "main" }, yes), el("button", { value: "no" }, no)));
    document.body.append(dialog);
    addEventListener("hashchange", () => dialog.close(), { once: true }); // it asks about the page that was left
    dialog.showModal();
  });
}
