// Users and queues: the share of the cluster each was promised and received, what it lacks, and its limits.

import { el, fill, smallTable } from "../elements.js";
import { number, percent, visible } from "../format.js";

const ASK_EVERY_MS = 5000;

export class UsersPage {
  constructor(root, board) {
    this.board = board;
    this.askedMs = -Infinity;
    this.content = el("div", {});
    fill(root, el("h1", {}, "Users and queues"), el("p", { class: "muted" }, board.live
      ? "Promised is the fair share of the GPUs over the last day: by weight, never more than jobs asked for (weighted max-min). Received is what they held. A deficit is what is missing."
      : "Shares up to the moment that the slider shows. Promised is the fair share of the GPUs: equal for all users, never more than their jobs asked for."), this.content);
  }

  update() {
    const stamp = this.board.live ? Math.floor(performance.now() / ASK_EVERY_MS) : this.board.now_s;
    if (stamp !== this.stamp) this.look((this.stamp = stamp));
  }

  async look() {
    try {
      const shares = await this.board.ask(this.board.live ? "shares" : `shares?at=${this.board.now_s}`);
      fill(this.content, this.part("Queues", shares.filter(({ kind }) => kind === "queue")), this.part("Users", shares.filter(({ kind }) => kind === "user")));
    } catch {
      // The stream says that the connection is lost.
    }
  }

  part(title, shares) {
    if (!shares.length) return title === "Users" ? el("p", { class: "muted" }, "No user had jobs in this time.") : null;
    const header = ["name", "promised", "received", "", "deficit (GPU-hours)", "quota", "GPUs held", "GPUs waited for", "fair share now", "weight"];
    const text = (value) => ({ number: value });
    return el("section", {}, el("h2", {}, title), smallTable(header, shares.map((share) => [
      visible(share.name), text(percent(share.promised)), text(percent(share.received)), bar(share), text(share.deficit_gpu_h > 0.005 ? number(share.deficit_gpu_h) : "none"),
      quota(share), text(number(share.held_gpus)), text(number(share.waiting_gpus)), text(number(share.fair_gpus)), text(number(share.weight))])));
  }
}

function bar({ promised, received }) {
  const inner = el("i"), made = el("span", { class: "bar", role: "img", "aria-label": `${percent(received)} of ${percent(promised)}` }, inner);
  inner.style.width = `${Math.min(100, promised > 0 ? (received / promised) * 100 : 100)}%`;
  return made;
}

function quota({ held_gpus, max_gpus, max_waiting }) {
  const parts = [max_gpus === null ? "" : `${held_gpus} of ${max_gpus} GPUs`, max_waiting === null ? "" : `${max_waiting} jobs waiting at most`];
  return parts.filter(Boolean).join(", ") || "none";
}
