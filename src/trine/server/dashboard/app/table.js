// A table of any length: only the rows in sight are elements. Sorted by its headers, moved through with the keys.

import { el, setText } from "./elements.js";

const ROW_PX = 30;

export class LongTable {
  /**
   * Columns are {key, title, value(row), text(row), width, number, from, optional}: shown where the table is at least
   * `from` pixels wide, an optional one only if some row has a value. `open(row)` is what Enter and a click do.
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
    for (const cell of this.head.children) {
      const own = cell.dataset.key === key;
      cell.setAttribute("aria-sort", own ? (this.sortDown ? "descending" : "ascending") : "none");
    }
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
    this.rows = column ? sorted(rows, column.value, this.sortDown) : rows;
    this.arrange();
    this.element.setAttribute("aria-rowcount", String(this.rows.length + 1));
    this.space.style.height = `${this.rows.length * ROW_PX}px`;
    this.show();
  }

  /** Which columns there is room for, and something to show in. */
  arrange() {
    const width = this.element.clientWidth || Infinity;
    const named = (column) => !column.optional || this.rows.some((row) => (column.value(row) ?? "") !== "");
    const shown = this.columns.filter((column) => width >= (column.from ?? 0) && named(column));
    const widths = shown.map((column) => column.width).join(" ");
    if (widths === this.widths) return;
    this.widths = widths;
    this.shown = new Set(shown);
    this.element.style.setProperty("--columns", widths);
    for (const row of [this.head, ...this.pool]) this.hideColumns(row);
  }

  hideColumns(row) {
    this.columns.forEach((column, i) => { row.children[i].hidden = !this.shown.has(column); });
  }

  /** Rows that are in sight now. */
  inSight() {
    const first = Math.max(0, Math.floor(this.body.scrollTop / ROW_PX) - 4);
    const last = Math.min(this.rows.length, Math.ceil((this.body.scrollTop + this.body.clientHeight) / ROW_PX) + 4);
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
    element.style.top = `${index * ROW_PX}px`;
    element.setAttribute("aria-rowindex", String(index + 2));
    element.classList.toggle("chosen", this.chosen === this.rowId(row));
    this.columns.forEach((column, i) => {
      const cell = element.children[i];
      if (cell.hidden) return;
      setText(cell, column.text(row));
      if (column.title && cell.textContent.length > 12) cell.title = cell.textContent;
    });
    if (this.marker) element.style.setProperty("--marker", this.marker(row));
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.body.clientHeight / ROW_PX) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    const at = this.rows.findIndex((row) => this.rowId(row) === this.chosen);
    if (event.key === "Enter" && at >= 0) this.open(this.rows[at]);
    if (!(event.key in steps) || !this.rows.length) return;
    event.preventDefault();
    const next = Math.min(this.rows.length - 1, Math.max(0, at < 0 ? 0 : at + steps[event.key]));
    this.chosen = this.rowId(this.rows[next]);
    const top = next * ROW_PX;
    if (top < this.body.scrollTop) this.body.scrollTop = top;
    else if (top + ROW_PX > this.body.scrollTop + this.body.clientHeight) this.body.scrollTop = top + ROW_PX - this.body.clientHeight;
    this.show();
  }
}

/** What has no value comes last, whichever way. */
function sorted(rows, value, down) {
  const sign = down ? -1 : 1;
  const keyed = rows.map((row, index) => ({ row, index, key: value(row) }));
  keyed.sort((a, b) => {
    const none = (a.key ?? "") === "" ? 1 : 0, other = (b.key ?? "") === "" ? 1 : 0;
    if (none || other) return none - other || a.index - b.index;
    const order = typeof a.key === "string" ? a.key.localeCompare(b.key, "en", { numeric: true }) : a.key - b.key;
    return order * sign || a.index - b.index;
  });
  return keyed.map(({ row }) => row);
}
