// The cluster at a glance: every GPU, coloured by what one wants to know.

import { jobColour, nameColour, scaleColour, stateColour } from "../colours.js";
import { choice, el, fill, setText } from "../elements.js";
import { count, percent, visible } from "../format.js";
import { ClusterMap } from "../map.js";

const CHANGING = new Set(["starting", "stopping"]);
const COLOURS = [["job", "job"], ["user", "user"], ["type", "GPU type"], ["slowdown", "chip slowdown"], ["state", "state"]];

export class ClusterPage {
  constructor(root, board) {
    this.board = board;
    this.by = localStorage.getItem("trine-colour") ?? "job";
    this.map = new ClusterMap(board, {
      paint: (gpu) => this.paint(gpu), describe: (gpu) => this.describe(gpu),
      open: (gpu) => { const [id] = board.gpus[gpu]; if (id && board.jobs.has(id)) location.hash = `#/job/${id}`; },
    });
    this.cards = el("div", { class: "cards" });
    this.legend = el("div", { class: "legend" });
    this.title = el("h1", {}, "Cluster");
    this.lead = el("p", { class: "muted" });
    fill(root, this.title, this.lead, this.cards,
      el("div", { class: "controls" }, choice("Colour by", COLOURS, this.by, (value) => this.colourBy(value))), this.legend, this.map.element);
  }

  close() {
    this.map.close();
  }

  colourBy(value) {
    this.by = value;
    localStorage.setItem("trine-colour", value);
    this.update();
  }

  update() {
    const board = this.board;
    this.worst = this.worstSlowdowns();
    const held = board.gpus.filter((jobs) => jobs.length).length, out = Object.keys(board.out).length;
    const free = board.gpus.filter((jobs, gpu) => !jobs.length && !(gpu in board.out)).length; // one that is out of service may still be held
    const states = { running: 0, waiting: 0 };
    for (const job of board.jobs.values()) states[job.state] = (states[job.state] ?? 0) + 1;
    setText(this.title, board.title ? visible(board.title) : "Cluster");
    setText(this.lead, `${count(board.gpus.length, "GPU")} on ${count(board.nodes.length, "node")}; ${board.about.policy} with ${board.about.placement}`);
    const cards = [[percent(held / Math.max(1, board.gpus.length)), "of the GPUs held"], [free, "GPUs free"],
      [out, "GPUs out of service"], [states.running + (states.starting ?? 0) + (states.stopping ?? 0), "jobs with GPUs"], [states.waiting, "jobs waiting"]];
    fill(this.cards, cards.map(([value, text]) => el("div", { class: "card" }, el("b", {}, typeof value === "number" ? value.toLocaleString("en") : value), el("span", {}, text))));
    fill(this.legend, this.legendItems().map(([colour, text]) => el("span", {}, this.swatch(colour), text)));
    this.map.draw();
  }

  swatch(colour) {
    const made = el("i");
    if (colour) made.style.background = colour;
    return made;
  }

  /** The largest slowdown of each GPU over all classes. */
  worstSlowdowns() {
    if (this.board.slowdowns === this.slowdowns) return this.worst;
    this.slowdowns = this.board.slowdowns;
    const tables = Object.values(this.slowdowns);
    return !tables.length ? null : tables[0].map((_, gpu) => Math.max(...tables.map((values) => values[gpu])));
  }

  paint(gpu) {
    const board = this.board, jobs = board.gpus[gpu];
    if (gpu in board.out && !jobs.length) return { fill: null, mark: "cross" };
    if (this.by === "slowdown") return { fill: this.worst ? scaleColour((this.worst[gpu] - 0.9) / 0.9) : null, mark: jobs.length > 1 ? "two" : "" };
    if (this.by === "type") return { fill: nameColour(this.typeOf(gpu)), mark: jobs.length ? "" : "half" };
    if (!jobs.length) return { fill: null };
    const job = board.jobs.get(jobs[0]);
    const mark = jobs.length > 1 ? "two" : job && CHANGING.has(job.state) ? "half" : gpu in board.out ? "cross" : "";
    if (this.by === "state") return { fill: stateColour(job?.state ?? "running"), mark };
    if (this.by === "user") return { fill: job ? nameColour(job.user) : "#9aa4af", mark };
    return { fill: job ? jobColour(job.id) : "#9aa4af", mark };
  }

  typeOf(gpu) {
    let first = 0;
    for (const node of this.board.nodes) {
      if (gpu < first + node.gpus) return node.gpu_type;
      first += node.gpus;
    }
    return "";
  }

  legendItems() {
    const common = [[null, "free"], [null, "× out of service"], ["#9aa4af", "another user's job"]];
    if (this.by === "slowdown") return this.worst ? [1, 1.2, 1.4, 1.6, 1.8].map((value) => [scaleColour((value - 0.9) / 0.9), `${value}x the median`]) : [[null, "no slowdowns are known"]];
    if (this.by === "type") return [...new Set(this.board.nodes.map((node) => node.gpu_type))].map((type) => [nameColour(type), type]).concat([[null, "half filled: free"]]);
    if (this.by === "state") return ["running", "starting", "stopping"].map((state) => [stateColour(state), state]).concat(common.slice(0, 2));
    if (this.by === "user") {
      const users = [...new Set([...this.board.jobs.values()].filter((job) => job.run_from_s !== null).map((job) => job.user))];
      return users.slice(0, 12).map((user) => [nameColour(user), visible(user)]).concat(common);
    }
    return [[jobColour("1"), "a colour per job"], ...common];
  }

  describe(gpu) {
    const board = this.board, lines = [`${board.gpuName(gpu)}, ${this.typeOf(gpu)}`];
    for (const id of board.gpus[gpu]) {
      const job = board.jobs.get(id);
      lines.push(job ? `job ${id} ${visible(job.name)}, ${visible(job.user)}, ${job.state}` : `job ${id} of another user`);
    }
    if (!board.gpus[gpu].length) lines.push(gpu in board.out ? `out of service: ${visible(board.out[gpu])}` : "free");
    for (const [name, values] of Object.entries(board.slowdowns)) lines.push(`${values[gpu]}x the median for class ${name}`);
    return lines.concat((board.flags[gpu] ?? []).map(visible)).join("\n");
  }
}
