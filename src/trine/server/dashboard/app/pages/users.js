// Users and queues: the share of the cluster each was promised and received, what it lacks, and its limits.

import { el, fill } from "../elements.js";
import { number, percent } from "../format.js";
import { SortedTable } from "../table.js";

const ASK_EVERY_MS = 5000;
const numbers = (key, title, format) => ({ title, value: (share) => share[key], cell: (share) => ({ number: format(share[key]) }) });
const COLUMNS = [
  { title: "name", value: ({ name }) => name, cell: ({ name }) => name },
  numbers("promised", "promised", percent),
  numbers("received", "received", percent),
  { title: "", value: () => 0, cell: bar },
  numbers("deficit_gpu_h", "deficit (GPU-hours)", (hours) => (hours > 0.005 ? number(hours) : "none")),
  { title: "quota", value: quota, cell: quota },
  numbers("held_gpus", "GPUs held", number),
  numbers("waiting_gpus", "GPUs waited for", number),
  numbers("fair_gpus", "fair share now", number),
  numbers("weight", "weight", number),
];

export class UsersPage {
  constructor(root, board) {
    this.board = board;
    this.askedMs = -Infinity;
    this.content = el("div", {});
    this.tables = { queue: new SortedTable(COLUMNS), user: new SortedTable(COLUMNS) };
    this.none = el("p", { class: "muted" }, "No user had jobs in this time.");
    this.parts = { queue: part("Queues", this.tables.queue), user: part("Users", this.tables.user) };
    fill(this.content, Object.values(this.parts), this.none);
    this.content.hidden = true; // until there is something to show
    fill(root, el("h1", {}, "Users and queues"), el("p", { class: "muted" }, board.live
      ? "Promised is the fair share of the GPUs over the last day: by weight, never more than jobs asked for (weighted max-min). Received is what they held. A deficit is what is missing."
      : "Shares up to the moment that the slider shows. Promised is the fair share of the GPUs: equal for all users, never more than their jobs asked for."), this.content);
  }

  update() {
    const stamp = this.board.live ? Math.floor(performance.now() / ASK_EVERY_MS) : this.board.now_s;
    if (stamp === this.stamp || this.asking) return;
    this.stamp = stamp;
    this.asking = this.look().finally(() => { this.asking = null; }); // one after the other: the last answer is the newest
  }

  async look() {
    try {
      const shares = await this.board.ask(this.board.live ? "shares" : `shares?at=${this.board.now_s}`);
      for (const [kind, table] of Object.entries(this.tables)) {
        const own = shares.filter((share) => share.kind === kind);
        table.set(own);
        this.parts[kind].hidden = !own.length;
      }
      this.none.hidden = !this.parts.user.hidden;
      this.content.hidden = false;
    } catch {
      // The stream says that the connection is lost.
    }
  }
}

const part = (title, table) => el("section", {}, el("h2", {}, title), table.element);

/** How much of what was promised was received; empty as long as neither is. */
function bar({ promised, received }) {
  const inner = el("i"), made = el("span", { class: "bar", role: "img", "aria-label": `${percent(received)} of ${percent(promised)}` }, inner);
  inner.style.width = `${Math.min(100, promised > 0 ? (received / promised) * 100 : received > 0 ? 100 : 0)}%`;
  return made;
}

function quota({ held_gpus, max_gpus, max_waiting }) {
  const parts = [max_gpus === null ? "" : `${held_gpus} of ${max_gpus} GPUs`, max_waiting === null ? "" : `${max_waiting} jobs waiting at most`];
  return parts.filter(Boolean).join(", ") || "none";
}
