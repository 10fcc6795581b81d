// All jobs: who waits and why, when they are expected to start, what runs; filtered and sorted here, in the browser.

import { stateColour } from "../colours.js";
import { choice, el, fill, setText } from "../elements.js";
import { count, duration, moment, number } from "../format.js";
import { interval, predictedOf, predictions } from "../predictions.js";
import { LongTable } from "../table.js";

const GROUPS = {
  live: ["not ended", (job) => job.finished_s === null],
  waiting: ["waiting", (job) => ["waiting", "held", "set aside"].includes(job.state)],
  running: ["with GPUs", (job) => job.run_from_s !== null],
  ended: ["ended", (job) => job.finished_s !== null],
  all: ["all", () => true],
};
const ORDER = { running: 0, starting: 0, stopping: 0, waiting: 1, held: 2, "set aside": 2 };
const REASONS_EVERY_MS = 1500, OLD_AFTER_MS = 10000; // a reason may change although no row does
const ALL_AT_ONCE = 200, ALL_PAUSE_MS = 100, ALL_EVERY_MS = 5000;

export class QueuePage {
  constructor(root, board) {
    this.board = board;
    this.group = "live";
    this.reasons = new Map();
    this.predicted = null;
    this.askedMs = 0;
    this.summary = el("span", { class: "muted", role: "status" });
    this.codes = new Map();
    this.reason = "";
    this.filter = el("input", { type: "search", placeholder: "filter: text, user:ada, state:waiting, gpus:8, why:quota", "aria-label": "Filter",
      oninput: () => this.chooseAnew() });
    this.reasonChoice = el("select", { onfocus: () => this.askAll(), onchange: () => { this.reason = this.reasonChoice.value; this.chooseAnew(); } }, el("option", { value: "" }, "any"));
    this.table = new LongTable(this.columns(), {
      label: "Jobs", rowId: (job) => job.id, open: (job) => { location.hash = `#/job/${job.id}`; },
      visibleChanged: (jobs) => this.askReasons(jobs), marker: (job) => stateColour(job.state),
    });
    const groups = Object.entries(GROUPS).map(([key, [text]]) => [key, text]);
    fill(root, el("h1", {}, "Queue"), el("div", { class: "controls" }, this.filter,
      choice("Show", groups, this.group, (value) => { this.group = value; this.chooseAnew(); }),
      el("label", { class: "choice" }, el("span", {}, "Reason"), this.reasonChoice), this.summary), this.table.element);
    if (board.live) this.askPredictions();
  }

  close() {
    this.table.close();
    clearTimeout(this.timer);
    this.closed = true;
  }

  /** Other rows are wanted: they begin at the top. */
  chooseAnew() {
    if (this.byReason()) this.askAll();
    this.update();
    this.table.toTop();
  }

  columns() {
    const board = this.board;
    const text = (key, title, width, more = {}) => ({ key, title, width, value: (job) => job[key], text: (job) => job[key], ...more });
    return [
      text("id", "id", "minmax(52px, .6fr)", { value: (job) => (/^\d+$/.test(job.id) ? Number(job.id) : job.id) }),
      text("name", "name", "minmax(80px, 1.5fr)", { optional: true }),
      text("state", "state", "minmax(76px, .8fr)"),
      text("gpus", "GPUs", "60px", { number: true }),
      { key: "rank", title: "rank", from: 700, width: "52px", number: true, value: (job) => board.rank.get(job.id), text: (job) => String(board.rank.get(job.id) ?? "") },
      text("user", "user", "minmax(70px, .8fr)", { from: 560 }),
      text("queue", "queue", "minmax(60px, .7fr)", { from: 960, optional: true }),
      { key: "progress", title: "done", from: 900, width: "56px", number: true, value: part, text: (job) => (part(job) === null ? "" : `${Math.floor(part(job) * 100)} %`) },
      { key: "time", title: "ran / waited", from: 560, width: "112px", number: true, value: (job) => elapsed(job, board), text: (job) => duration(elapsed(job, board)) },
      ...(board.live ? [{ key: "start", title: "expected", from: 860, width: "minmax(226px, 1.4fr)", value: (job) => this.expected(job)?.median, text: (job) => this.expectedText(job) }] : []),
      { key: "why", title: "why", from: 560, width: "minmax(120px, 3.6fr)", value: (job) => this.reasons.get(job.id), text: (job) => this.reasons.get(job.id) ?? "",
        below: (job) => [board.live ? this.expectedText(job) : "", this.reasons.get(job.id)].filter(Boolean).join("; ") },
    ];
  }

  update() {
    const [, inGroup] = GROUPS[this.group];
    const wanted = matcher(this.filter.value, this.reasons);
    const jobs = [...this.board.jobs.values()].filter((job) => inGroup(job) && wanted(job) && (!this.reason || this.codes.get(job.id) === this.reason));
    const rank = this.board.rank;
    const place = (job) => [ORDER[job.state] ?? 3, rank.get(job.id) ?? -(job.finished_s ?? 0)];
    const keyed = jobs.map((job) => [place(job), job]);
    keyed.sort(([[a, b]], [[c, d]]) => a - c || b - d);
    this.table.set(keyed.map(([, job]) => job));
    const unknown = this.byReason() && this.asked < this.toAsk ? `, reasons of ${number(this.toAsk - this.asked)} more are asked for` : "";
    setText(this.summary, `${count(jobs.length, "job")}, ${count(jobs.reduce((sum, job) => sum + job.gpus, 0), "GPU")} asked for${unknown}`);
  }

  /** Reasons are asked for the rows in sight only, and not at every step of a scroll. */
  askReasons(jobs) {
    this.sight = jobs.map((job) => job.id);
    if (this.timer || !this.sight.length) return;
    const wait = Math.max(60, this.askedMs + REASONS_EVERY_MS - performance.now());
    const fresh = this.sight.some((id) => !this.reasons.has(id));
    this.timer = setTimeout(() => this.fetchReasons(), fresh ? 60 : wait);
  }

  async fetchReasons() {
    this.timer = null;
    const stamp = this.board.now_s, ids = this.sight.slice(0, 100);
    const known = ids.every((id) => this.reasons.has(id));
    const fresh = stamp === this.reasonsOf && !(this.board.live && performance.now() - this.askedMs > OLD_AFTER_MS);
    if (this.closed || (known && fresh)) return;
    this.askedMs = performance.now();
    try {
      await this.takeReasons(ids, stamp);
      this.reasonsOf = stamp;
      if (!this.closed) this.table.show();
    } catch {
      // The stream says that the connection is lost.
    }
  }

  async takeReasons(ids, stamp) {
    const query = ids.map((id) => `job=${encodeURIComponent(id)}`).join("&");
    const { reasons } = await this.board.ask(`board/reasons?${query}${this.board.live ? "" : `&at=${stamp}`}`);
    for (const id of ids) {
      this.reasons.set(id, reasons[id]?.sentence ?? "");
      this.codes.set(id, reasons[id]?.code ?? "");
    }
  }

  byReason() {
    return this.reason !== "" || /(^|\s)why:/.test(this.filter.value);
  }

  /** To filter by reason, that of every job has to be known: asked for in parts, again while the filter is set. */
  async askAll() {
    if (this.askingAll) return;
    this.askingAll = true;
    try {
      do {
        const ids = [...this.board.jobs.values()].filter((job) => job.finished_s === null).map(({ id }) => id);
        this.toAsk = ids.length;
        for (this.asked = 0; this.asked < ids.length && !this.closed; this.asked += ALL_AT_ONCE) {
          await this.takeReasons(ids.slice(this.asked, this.asked + ALL_AT_ONCE), this.board.now_s);
          this.offerReasons();
          if (this.byReason()) this.update();
          await new Promise((resolve) => setTimeout(resolve, ALL_PAUSE_MS));
        }
        await new Promise((resolve) => setTimeout(resolve, ALL_EVERY_MS));
      } while (this.byReason() && !this.closed);
    } catch {
      // The stream says that the connection is lost; a new choice asks again.
    } finally {
      this.askingAll = false;
    }
  }

  /** Every reason that some job has, with how many. */
  offerReasons() {
    const counts = new Map([[this.reason, 0]]);
    for (const [id, code] of this.codes) if (this.board.jobs.get(id)?.finished_s === null) counts.set(code, (counts.get(code) ?? 0) + 1);
    counts.delete("");
    const offered = [...counts].sort().map(([code, jobs]) => [code, `${code.replaceAll("-", " ")} (${number(jobs)})`]);
    const told = JSON.stringify(offered);
    if (told === this.toldReasons) return;
    this.toldReasons = told;
    fill(this.reasonChoice, el("option", { value: "" }, "any"), offered.map(([code, text]) => el("option", { value: code, selected: code === this.reason }, text)));
  }

  async askPredictions() {
    while (!this.closed) {
      this.predicted = await predictions();
      await new Promise((resolve) => setTimeout(resolve, 10000));
    }
  }

  expected(job) {
    const found = predictedOf(this.predicted, job);
    return found ? found.start_s ?? found.end_s : null;
  }

  expectedText(job) {
    const found = predictedOf(this.predicted, job);
    if (!found) return job.run_from_s !== null && job.expected_end_s ? `ends ${moment(job.expected_end_s, this.board)}` : "";
    if (!found.start_s && !found.end_s) return "";
    return found.start_s ? `starts ${interval(found.start_s, this.board)}` : `ends ${interval(found.end_s, this.board)}`;
  }
}

const part = (job) => (job.total && job.step !== null ? Math.min(1, job.step / job.total) : null);

/** Seconds since the present start; of a job that has ended from its first start to its end; else since its submission. */
function elapsed(job, board) {
  if (job.run_from_s !== null) return board.time_s - job.run_from_s;
  if (job.finished_s !== null) return job.finished_s - (job.started_s ?? job.submitted_s);
  return board.time_s - job.submitted_s;
}

/** "ada state:waiting": every word must be found, a word with a colon in its column; why: is the reason. */
function matcher(text, reasons) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return (job) => words.every((word) => {
    const [key, ...rest] = word.split(":");
    if (key === "why" && rest.length) return (reasons.get(job.id) ?? "").toLowerCase().includes(rest.join(":"));
    if (rest.length && key in job) return key === "gpus" || key === "id" ? String(job[key]) === rest.join(":") : String(job[key] ?? "").toLowerCase().includes(rest.join(":"));
    return ["id", "name", "user", "queue", "state", "model"].some((column) => String(job[column] ?? "").toLowerCase().includes(word));
  });
}

export { part, elapsed };
