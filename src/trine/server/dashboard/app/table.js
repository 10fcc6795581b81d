// Tables that are sorted by their headers: one of any length, of which only the rows in sight are elements and which is
// moved through with the keys, and one of some hundreds of rows.

import { el, fill, setText, tableRow } from "./elements.js";

const ROW_PX = 30, TWO_LINES_PX = 52;

export class LongTable {
  /**
   * Columns are {key, title, value(row), text(row), width, number, from, optional}: shown where the table is at least
   * `from` pixels wide, an optional one only if some row has a value. A narrower table shows a column with `below(row)`, a
   * text, in a second line of each row. `open(row)` is what Enter and a click do.
   */
  constructor(columns, { label, open, rowId, visibleChanged, marker }) {
    Object.assign(this, { columns, open, rowId, visibleChanged, marker });
    this.rows = [];
    this.sortKey = null;
    this.sortDown = false;
    this.chosen = null;
    this.pool = [];
    this.head = el("div", { role: "row", class: "row head" }, columns.map((column) => this.header(column)));
    this.space = el("div", { class: "space", role: "rowgroup" });
    this.body = el("div", { class: "body", tabindex: 0, "aria-label": `${label}; arrow keys move, Enter opens`,
      onscroll: () => this.show(), onkeydown: (event) => this.key(event) }, this.space);
    this.element = el("div", { class: "long-table", role: "table", "aria-label": label },
      el("div", { role: "rowgroup", class: "heads" }, this.head), this.body);
    this.shown = new Set(columns);
    this.below = null;
    this.texts = new TextOrder();
    this.resized = new ResizeObserver(() => { this.arrange(); this.show(); });
    this.resized.observe(this.body);
  }

  close() {
    this.resized.disconnect();
  }

  header(column) {
    const button = el("button", { type: "button", onclick: () => this.sortBy(column.key) }, column.title);
    return el("div", { role: "columnheader", class: `cell${column.number ? " number" : ""}`, "data-key": column.key }, button);
  }

  sortBy(key) {
    this.sortDown = this.sortKey === key ? !this.sortDown : false;
    this.sortKey = key;
    for (const cell of this.head.children) cell.setAttribute("aria-sort", cell.dataset.key !== key ? "none" : this.sortDown ? "descending" : "ascending");
    this.set(this.given);
    this.toTop();
  }

  toTop() {
    this.body.scrollTop = 0;
    this.show();
  }

  set(rows) {
    this.given = rows;
    const column = this.columns.find(({ key }) => key === this.sortKey);
    this.rows = column ? sorted(rows, column.value, this.sortDown, this.texts) : rows;
    this.arrange();
    this.element.setAttribute("aria-rowcount", String(this.rows.length + 1));
    this.space.style.height = `${this.rows.length * this.rowPx}px`;
    this.show();
  }

  get rowPx() {
    return this.below ? TWO_LINES_PX : ROW_PX;
  }

  /** Which columns there is room for, and something to show in. */
  arrange() {
    const width = this.element.clientWidth || Infinity;
    const named = (column) => !column.optional || this.rows.some((row) => (column.value(row) ?? "") !== "");
    const shown = this.columns.filter((column) => width >= (column.from ?? 0) && named(column));
    const widths = shown.map((column) => column.width).join(" ");
    if (widths === this.widths) return;
    this.widths = widths;
    this.below = this.columns.find((column) => column.below && !shown.includes(column)) ?? null;
    this.shown = new Set(shown);
    this.element.style.setProperty("--columns", widths);
    this.element.classList.toggle("two-lines", this.below !== null);
    this.space.style.height = `${this.rows.length * this.rowPx}px`;
    for (const row of [this.head, ...this.pool]) this.hideColumns(row);
  }

  hideColumns(row) {
    this.columns.forEach((column, i) => {
      row.children[i].hidden = !this.shown.has(column) && (row === this.head || column !== this.below);
      row.children[i].classList.toggle("below", column === this.below);
    });
  }

  /** Rows that are in sight now. */
  inSight() {
    const first = Math.max(0, Math.floor(this.body.scrollTop / this.rowPx) - 4);
    const last = Math.min(this.rows.length, Math.ceil((this.body.scrollTop + this.body.clientHeight) / this.rowPx) + 4);
    return [first, last];
  }

  show() {
    const [first, last] = this.inSight();
    while (this.pool.length < last - first) this.pool.push(this.newRow());
    this.pool.forEach((element, i) => this.showRow(element, first + i < last ? first + i : -1));
    this.visibleChanged?.(this.rows.slice(first, last));
  }

  newRow() {
    const made = el("div", { role: "row", class: "row", onclick: () => this.open(made.row) },
      this.columns.map((column) => el("div", { role: "cell", class: `cell${column.number ? " number" : ""}` })));
    this.hideColumns(made);
    this.space.append(made);
    return made;
  }

  showRow(element, index) {
    element.hidden = index < 0;
    if (index < 0) return;
    const row = this.rows[index];
    element.row = row;
    element.style.top = `${index * this.rowPx}px`;
    element.setAttribute("aria-rowindex", String(index + 2));
    element.classList.toggle("chosen", this.chosen === this.rowId(row));
    this.columns.forEach((column, i) => {
      const cell = element.children[i];
      if (cell.hidden) return;
      setText(cell, column === this.below ? column.below(row) : column.text(row));
      if (column.title && cell.textContent.length > 12) cell.title = cell.textContent;
    });
    if (this.marker) element.style.setProperty("--marker", this.marker(row));
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.body.clientHeight / this.rowPx) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    const at = this.rows.findIndex((row) => this.rowId(row) === this.chosen);
    if (event.key === "Enter" && at >= 0) this.open(this.rows[at]);
    if (!(event.key in steps) || !this.rows.length) return;
    event.preventDefault();
    const next = Math.min(this.rows.length - 1, Math.max(0, at < 0 && event.key !== "End" ? 0 : at + steps[event.key]));
    this.chosen = this.rowId(this.rows[next]);
    const top = next * this.rowPx, bottom = top + this.rowPx;
    if (top < this.body.scrollTop) this.body.scrollTop = top;
    else if (bottom > this.body.scrollTop + this.body.clientHeight) this.body.scrollTop = bottom - this.body.clientHeight;
    this.show();
  }
}

/** A table of some hundreds of rows. Columns are {title, value(row), cell(row)}; the first says the order at first. */
export class SortedTable {
  constructor(columns) {
    this.columns = columns;
    this.texts = new TextOrder();
    this.rows = [];
    this.sortDown = false;
    this.by = columns[0];
    this.heads = columns.map((column) => el("th", { scope: "col" },
      column.title && el("button", { type: "button", onclick: () => this.sortBy(column) }, column.title)));
    this.body = el("tbody", {});
    this.element = el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, this.heads)), this.body));
  }

  sortBy(column) {
    this.sortDown = this.by === column ? !this.sortDown : typeof column.value(this.rows[0] ?? {}) === "number"; // the largest first
    this.by = column;
    this.heads.forEach((head, i) => head.setAttribute("aria-sort", this.columns[i] !== column ? "none" : this.sortDown ? "descending" : "ascending"));
    this.set(this.rows);
  }

  set(rows) {
    this.rows = rows;
    fill(this.body, sorted(rows, this.by.value, this.sortDown, this.texts).map((row) => tableRow(this.columns.map((column) => column.cell(row)))));
  }
}

/** What has no value comes last, whichever way. */
function sorted(rows, value, down, texts) {
  const sign = down ? -1 : 1;
  const keyed = rows.map((row, index) => ({ row, index, key: value(row) ?? "" }));
  texts.add(keyed);
  for (const each of keyed) if (typeof each.key === "string" && each.key !== "") each.key = texts.place.get(each.key);
  keyed.sort((a, b) => {
    const none = a.key === "" ? 1 : 0, other = b.key === "" ? 1 : 0;
    if (none || other) return none - other || a.index - b.index;
    return (a.key - b.key) * sign || a.index - b.index;
  });
  return keyed.map(({ row }) => row);
}

const PEOPLE = new Intl.Collator("en", { numeric: true }); // user2 before user10

/** Texts as numbers, in the order of people. To compare them anew at every update would take longer than all else. */
class TextOrder {
  constructor() {
    this.place = new Map();
  }

  add(keyed) {
    const fresh = new Set();
    for (const { key } of keyed) if (typeof key === "string" && key !== "" && !this.place.has(key)) fresh.add(key);
    if (!fresh.size) return;
    const kept = this.place.size > 2 * keyed.length ? keyed.map(({ key }) => key).filter((key) => this.place.has(key)) : this.place.keys();
    const ordered = [...new Set([...kept, ...fresh])].sort(PEOPLE.compare);
    this.place = new Map(ordered.map((text, index) => [text, index]));
  }
}
