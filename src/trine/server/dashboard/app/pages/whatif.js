// What would change if: changes are tried on a simulation of the present state; who gains, who loses, and by how much.

import { el, fill, setText, smallTable } from "../elements.js";
import { duration, number, visible } from "../format.js";
import { predictions } from "../predictions.js";
import { post } from "../session.js";

const EXAMPLES = ["policy=srtf", "add=2x8", "lose=node0", "cancel=17", "priority:17=5"];

export class WhatIfPage {
  constructor(root, board) {
    this.board = board;
    this.changes = el("textarea", { id: "changes", rows: 4, cols: 48, spellcheck: "false", maxlength: 4000 });
    this.answer = el("div", { role: "status" });
    this.score = el("p", { class: "muted" });
    this.run = el("button", { class: "main" }, "Try it");
    fill(root, el("h1", {}, "What if"), el("p", { class: "muted" }, `One change per line, as for trine whatif: ${EXAMPLES.join(", ")}. Nothing happens to the cluster.`),
      el("form", { onsubmit: (event) => this.ask(event) }, el("label", { for: "changes" }, "Changes"), el("div", {}, this.changes), el("div", { class: "controls" }, this.run)), this.answer, this.score);
    this.showScore();
  }

  update() {}

  async showScore() {
    const found = await predictions();
    if (found?.score) setText(this.score, `How good the predictions of this daemon were so far: ${Object.entries(found.score).map(([key, value]) => `${key} ${typeof value === "number" ? number(value) : value}`).join(", ")}.`);
  }

  async ask(event) {
    event.preventDefault();
    const changes = this.changes.value.split("\n").map((line) => line.trim()).filter(Boolean);
    if (!changes.length) { fill(this.answer, el("p", { class: "alarm" }, "Name a change first.")); return; }
    this.run.disabled = true;
    fill(this.answer, el("p", {}, "Simulating ..."));
    try {
      fill(this.answer, shown(await post("/v1/whatif", { changes })));
    } catch (error) {
      const text = error.status === 404 ? "This daemon makes no predictions, so it cannot say what a change would do." : error.message;
      fill(this.answer, el("p", { class: "alarm", role: "alert" }, text));
    } finally {
      this.run.disabled = false;
    }
  }
}

/** An answer of rows by job, whatever their columns are; seconds are shown as durations. */
function shown(answer) {
  const rows = Array.isArray(answer) ? answer : answer.jobs ?? answer.rows ?? [];
  const list = Array.isArray(rows) ? rows : Object.entries(rows).map(([job, row]) => ({ job, ...row }));
  const sentences = [answer.summary, answer.headline, ...(answer.notes ?? [])].filter((text) => typeof text === "string");
  const keys = [...new Set(list.flatMap((row) => Object.keys(row)))];
  return el("section", {}, sentences.map((text) => el("p", {}, visible(text))), list.length
    ? smallTable(keys.map((key) => key.replace(/_s$/, "").replaceAll("_", " ")), list.map((row) => keys.map((key) => cell(key, row[key]))))
    : el("p", {}, "No job gains or loses."));
}

function cell(key, value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "object") return { number: ["low", "median", "high"].every((part) => part in value) ? `${signed(value.median)} (${signed(value.low)} to ${signed(value.high)})` : JSON.stringify(value) };
  if (typeof value === "number") return { number: key.endsWith("_s") ? signed(value) : number(value) };
  return visible(value);
}

const signed = (seconds) => (seconds < 0 ? `−${duration(-seconds)}` : duration(seconds));
