// What the cluster did: utilization, queue, waits, fairness and preemptions over time.

import { lineChart } from "../chart.js";
import { el, fill } from "../elements.js";
import { duration, moment, number } from "../format.js";

const ASK_EVERY_MS = 20000, RUNNING_EVERY_MS = 3000;

export class HistoryPage {
  constructor(root, board) {
    this.board = board;
    this.notBefore = 0;
    this.content = el("div", { class: "charts" });
    fill(root, el("h1", {}, "History"), el("p", { class: "muted" }, board.live ? "The past week at most; samples every minute, waits by the hour." : "The whole run."), this.content);
  }

  update() {
    const now = performance.now();
    const stamp = this.board.live ? Math.floor(now / ASK_EVERY_MS) : this.board.end_s; // that of a run that goes on grows
    if (stamp === this.stamp || now < this.notBefore) return;
    this.notBefore = now + (this.board.live ? 0 : RUNNING_EVERY_MS);
    this.look((this.stamp = stamp));
  }

  async look() {
    try {
      this.show(await this.board.ask("usage"));
    } catch {
      this.stamp = null;
    }
  }

  show({ at_s, columns, hours }) {
    const time = (at) => moment(at, this.board), times = hours.map((hour) => hour.hour_s), of = (key) => hours.map((hour) => hour[key]);
    const held = columns["GPUs held"], all = columns["GPUs in service"];
    const percents = { time, least: 100, format: (value) => `${number(value)} %` };
    fill(this.content,
      lineChart("Utilization", at_s, [{ name: "GPUs held", values: held.map((n, i) => (all?.[i] ? (n / Math.max(n, all[i])) * 100 : NaN)) }], percents),
      lineChart("GPUs", at_s, Object.entries(columns).filter(([name]) => name !== "jobs waiting").map(([name, values]) => ({ name, values })), { time }),
      columns["jobs waiting"] ? lineChart("Jobs waiting", at_s, [{ name: "jobs", values: columns["jobs waiting"] }], { time }) : null,
      hours.length ? lineChart("Wait before the first start", times, [{ name: "median", values: of("wait_p50_s") }, { name: "95th percentile", values: of("wait_p95_s") }], { time, format: duration, least: 2 }) : null,
      hours.length ? lineChart("Fairness: completion time over run time", times, [{ name: "median", values: of("slowdown_p50") }, { name: "95th percentile", values: of("slowdown_p95") }], { time, from: 1, least: 1 }) : null,
      hours.length ? lineChart("Preemptions of jobs that ended", times, [{ name: "preemptions", values: of("preemptions") }], { time }) : el("p", { class: "muted" }, "No job has started yet."));
  }
}
