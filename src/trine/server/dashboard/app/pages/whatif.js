// What would change if: changes are tried on a simulation of the present state; who gains, who loses, and by how much.

import { confirmed, el, fill, setText, smallTable } from "../elements.js";
import { duration, moment, number, percent } from "../format.js";
import { interval, predictions } from "../predictions.js";
import { post } from "../session.js";

const EXAMPLES = ["policy las", "add 2x8", "lose node3", "drain node3", "submit 8 1h", "cancel 17", "priority 17 5", "quota user:ann=16"];
const LIMITS = { none: null, default: "default" };
const onJob = (verb) => (job) => post(`/v1/jobs/${encodeURIComponent(job)}/${verb}`);
/** The verb of the API for each change that the daemon carries out; what it does not is told beside the comparison. */
const VERBS = {
  cancel: onJob("cancel"),
  hold: onJob("hold"),
  release: onJob("release"),
  priority: (job, value) => post(`/v1/jobs/${encodeURIComponent(job)}/priority`, { priority: Number(value) }),
  quota: (text) => post("/v1/quotas", { quotas: quotaOf(text) }),
  drain: (node) => post(`/v1/nodes/${encodeURIComponent(node)}/drain`, { reason: "what if, applied" }),
};

export class WhatIfPage {
  constructor(root, board) {
    this.board = board;
    this.changes = el("textarea", { id: "changes", rows: 4, cols: 48, spellcheck: "false", maxlength: 4000 });
    this.answer = el("div", { role: "status" });
    this.score = el("p", { class: "muted" });
    this.run = el("button", { class: "main" }, "Try it");
    fill(root, el("h1", {}, "What if"), el("p", { class: "muted" }, `One change per line, as for trine whatif: ${EXAMPLES.join(", ")}. Nothing happens to the cluster before you say so.`),
      el("form", { onsubmit: (event) => this.ask(event) }, el("label", { for: "changes" }, "Changes"), el("div", {}, this.changes), el("div", { class: "controls" }, this.run)), this.answer, this.score);
    this.showScore();
  }

  update() {}

  async showScore() {
    const found = await predictions();
    const scored = Object.entries(found?.score ?? {}).filter(([, score]) => score.count > 0);
    if (scored.length) setText(this.score, `Predictions of this daemon so far: ${scored.map(([kind, score]) => `${kind}: ${percent(score.coverage)} of ${number(score.count)} intervals held, off by ${duration(score.median_error_s)}`).join("; ")}.`);
  }

  async ask(event) {
    event.preventDefault();
    const changes = this.changes.value.split("\n").map((line) => line.trim()).filter(Boolean);
    if (!changes.length) { fill(this.answer, el("p", { class: "alarm" }, "Name a change first.")); return; }
    this.run.disabled = true;
    fill(this.answer, el("p", {}, "Simulating ..."));
    try {
      const found = await post("/v1/whatif", { changes });
      fill(this.answer, shown(found, this.board), this.applying(changes, found.instead ?? {}));
    } catch (error) {
      const text = error.status === 404 ? "This daemon makes no predictions, so it cannot say what a change would do." : error.message;
      fill(this.answer, el("p", { class: "alarm", role: "alert" }, text));
    } finally {
      this.run.disabled = false;
    }
  }

  /** A button that makes the changes; or what to do about those that the daemon does not carry out. */
  applying(changes, instead) {
    const cannot = Object.entries(instead);
    if (cannot.length) return el("p", { class: "muted" }, cannot.map(([change, what]) => `The daemon does not do "${change}" itself; ${what}.`).join(" "));
    const done = el("p", { role: "status" });
    const button = el("button", { type: "button", "data-verb": "apply", onclick: () => this.apply(changes, button, done) }, changes.length > 1 ? "Make these changes" : "Make this change");
    return el("div", { class: "controls" }, button, done);
  }

  async apply(changes, button, done) {
    const cancelled = changes.filter((change) => change.startsWith("cancel ")).map((change) => change.slice(7).trim());
    if (cancelled.length && !await confirmed(`Cancel ${cancelled.length > 1 ? "jobs" : "job"} ${cancelled.join(", ")} for good?`, "Cancel for good", "Leave it")) return;
    button.disabled = true;
    const made = [];
    try {
      for (const change of changes) {
        const [verb, ...words] = change.split(/\s+/);
        await VERBS[verb](...words);
        made.push(change);
      }
      setText(done, `Done: ${made.join(", ")}.`);
    } catch (error) {
      setText(done, made.length ? `Done: ${made.join(", ")}; then: ${error.message}` : error.message);
      button.disabled = false;
    }
  }
}

/** `user:ann=16` as the API takes it. */
function quotaOf(text) {
  const at = text.lastIndexOf("="), value = text.slice(at + 1);
  return { [text.slice(0, at)]: value in LIMITS ? LIMITS[value] : Number(value) };
}

/** Who gains and who loses, those who lose most first; a change below 0 means that the job ends earlier. */
function shown({ draws, gain, lose, same, mean_change_s: mean, assumed = [], jobs }, board) {
  const rows = Object.entries(jobs).map(([job, row]) => ({ job, ...row }));
  const keys = ["job", "change_s", "before", "after"];
  const later = (row) => (row.never_runs ? Infinity : row.change_s?.median ?? 0);
  rows.sort((a, b) => (later(a) === later(b) ? 0 : later(b) - later(a)));
  const never = rows.filter((row) => row.never_runs).length;
  const total = `${gain} gain, ${lose} lose, ${same} stay the same, over ${draws} draws.${never ? ` ${never} of those that lose could not run at all.` : ""}`;
  const notes = assumed.map((sentence) => el("p", { class: "muted" }, visible(sentence)));
  return el("section", {}, el("p", {}, mean ? `${total} Mean change of the end: ${spread(mean)}.` : total), ...notes, rows.length
    ? smallTable(keys.map((key) => key.replace(/_s$/, "").replaceAll("_", " ")), rows.map((row) => keys.map((key) => (key === "change_s" && row.never_runs ? "would not run" : cell(key, row[key], board)))))
    : el("p", {}, "No job is concerned."));
}

function cell(key, value, board) {
  if (value === null || value === undefined) return "";
  if (typeof value === "object") {
    if ("end_s" in value) return value.end_s ? { number: `ends ${interval(value.end_s, board)}` } : "";
    if (!["low", "median", "high"].every((part) => part in value)) return JSON.stringify(value);
    return { number: key === "change_s" ? spread(value) : interval(value, board) };
  }
  if (typeof value === "number") return { number: key === "change_s" ? signed(value) : key.endsWith("_s") ? moment(value, board) : number(value) };
  return key === "job" ? el("a", { href: `#/job/${encodeURIComponent(value)}` }, value) : value;
}

const signed = (seconds) => (seconds < 0 ? `−${duration(-seconds)}` : duration(seconds));
const spread = ({ low, median, high }) => `${signed(median)} (${signed(low)} to ${signed(high)})`;
