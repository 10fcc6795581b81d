// What would change if: changes are tried on a simulation of the present state; who gains, who loses, and by how much.

import { confirmed, el, fill, setText, smallTable } from "../elements.js";
import { duration, number, percent } from "../format.js";
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
    if (cannot.length) return el("p", { class: "muted" }, cannot.map(([change, what]) => `The daemon does not do "${change}" itself. Instead: ${what}.`).join(" "));
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

/** Who gains and who loses: jobs that the changes submit first, with their start, then those who lose most. */
function shown({ made_at_s, draws, gain, lose, same, mean_change_s: mean, assumed = [], jobs }, board) {
  const rows = Object.entries(jobs).map(([job, row]) => ({ job, ...row, is_new: row.before === null && !board.jobs.has(job) }));
  const later = (row) => (row.is_new || row.never_runs ? Infinity : row.change_s?.median ?? 0);
  rows.sort((a, b) => b.is_new - a.is_new || (later(a) === later(b) ? 0 : later(b) - later(a)));
  const never = rows.filter((row) => row.never_runs).length;
  const total = `${gain} gain, ${lose} lose, ${same} stay the same, over ${draws} draws.${never ? ` ${never} of those that lose could not run at all.` : ""}`;
  const notes = assumed.map((sentence) => el("p", { class: "muted" }, sentence));
  const header = ["job", "name", "ends", "would end", "would start", "its end, 80 %"];
  return el("section", {}, el("p", {}, mean ? `${total} Mean change of the end: ${spread(mean)}.` : total), ...notes, rows.length
    ? smallTable(header, rows.map((row) => cells(row, made_at_s, board)))
    : el("p", {}, "No job is concerned."));
}

/** Starts are shown of jobs that have not started. */
function cells(row, made_at_s, board) {
  const start = row.after?.start_s, time = (found) => (found ? { number: interval(found, board) } : "");
  const known = board.jobs.get(row.job);
  return [
    row.is_new ? "new" : el("a", { href: `#/job/${encodeURIComponent(row.job)}` }, row.job),
    known?.name ?? "",
    time(row.before?.end_s), time(row.after?.end_s), start?.high === made_at_s ? "at once" : time(start?.median >= made_at_s ? start : null),
    row.never_runs ? "would not run" : row.change_s ? { number: spread(row.change_s) } : "",
  ];
}

const shift = (seconds) => (Math.abs(seconds) < 1 ? "same" : `${duration(Math.abs(seconds))} ${seconds < 0 ? "earlier" : "later"}`);
const spread = ({ low, median, high }) => (shift(low) === shift(high) ? shift(median) : `${shift(median)} (${shift(low)} to ${shift(high)})`);
