// The cluster at a glance: every GPU, coloured by what one wants to know.

import { DistinctColours, jobColour, OTHER, scaleBegin, scaleColour, stateColour } from "../colours.js";
import { choice, el, fill, setText } from "../elements.js";
import { count, percent } from "../format.js";
import { ClusterMap } from "../map.js";

const CHANGING = new Set(["starting", "stopping"]);
const COLOURS = [["job", "job"], ["user", "user"], ["type", "GPU type"], ["slowdown", "chip slowdown"], ["state", "state"]];

export class ClusterPage {
  constructor(root, board, { session }) {
    this.board = board;
    this.othersJobs = board.live && !session.admin;
    this.users = new DistinctColours();
    this.types = new DistinctColours();
    this.by = localStorage.getItem("trine-colour") ?? "job";
    this.map = new ClusterMap(board, {
      paint: (gpu) => this.paint(gpu), describe: (gpu) => this.describe(gpu),
      open: (gpu) => { const [id] = board.gpus[gpu]; if (id && board.jobs.has(id)) location.hash = `#/job/${id}`; },
    });
    this.cards = el("div", { class: "cards" });
    this.legend = el("div", { class: "legend" });
    this.lead = el("p", { class: "muted" });
    fill(root, el("h1", {}, "Cluster"), this.lead, this.cards,
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
    this.scaleFrom = scaleBegin();
    this.assignColours();
    const held = board.gpus.filter((jobs) => jobs.length).length, out = Object.keys(board.out).length;
    const free = board.gpus.filter((jobs, gpu) => !jobs.length && !(gpu in board.out)).length; // one that is out of service may still be held
    const states = { running: 0, waiting: 0 };
    for (const job of board.jobs.values()) states[job.state] = (states[job.state] ?? 0) + 1;
    setText(this.lead, `${count(board.gpus.length, "GPU")} on ${count(board.nodes.length, "node")}; ${board.about.policy} with ${board.about.placement}`);
    const cards = [[percent(held / Math.max(1, board.gpus.length)), "of the GPUs held"], [free, "GPUs free"],
      [out, "GPUs out of service"], [states.running + (states.starting ?? 0) + (states.stopping ?? 0), "jobs with GPUs"], [states.waiting, "jobs waiting"]];
    fill(this.cards, cards.map(([value, text]) => el("div", { class: "card" }, el("b", {}, typeof value === "number" ? value.toLocaleString("en") : value), el("span", {}, text))));
    fill(this.legend, this.legendItems().map(([colour, text, mark]) => el("span", {}, this.swatch(colour, mark), text)));
    this.map.draw();
  }

  swatch(colour, mark) {
    const made = el("i", { class: mark });
    if (colour) made.style.background = colour;
    return made;
  }

  /** Users by the GPUs that they hold, and types by their GPUs: those that have most get colours of their own. */
  assignColours() {
    const users = new Map(), types = new Map();
    for (const node of this.board.nodes) types.set(node.gpu_type, (types.get(node.gpu_type) ?? 0) + node.gpus);
    for (const job of this.board.jobs.values()) if (job.run_from_s !== null) users.set(job.user, (users.get(job.user) ?? 0) + job.gpus);
    const most = (sizes) => [...sizes.keys()].sort((a, b) => sizes.get(b) - sizes.get(a));
    this.heldBy = most(users);
    this.users.assign(this.heldBy);
    this.types.assign(most(types));
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
    if (this.by === "slowdown") return { fill: this.worst ? this.slowdownColour(this.worst[gpu]) : null, mark: jobs.length > 1 ? "two" : "" };
    if (this.by === "type") return { fill: this.types.of(this.typeOf(gpu)), mark: jobs.length ? "" : "half" };
    if (!jobs.length) return { fill: null };
    const job = board.jobs.get(jobs[0]);
    const mark = jobs.length > 1 ? "two" : job && CHANGING.has(job.state) ? "half" : gpu in board.out ? "cross" : "";
    if (this.by === "state") return { fill: stateColour(job?.state ?? "running"), mark };
    if (this.by === "user") return { fill: job ? this.users.of(job.user) : OTHER, mark };
    return { fill: job ? jobColour(job.id) : OTHER, mark };
  }

  typeOf(gpu) {
    let first = 0;
    for (const node of this.board.nodes) {
      if (gpu < first + node.gpus) return node.gpu_type;
      first += node.gpus;
    }
    return "";
  }

  slowdownColour(value) {
    return scaleColour((value - 0.9) / 0.9, this.scaleFrom);
  }

  legendItems() {
    const marks = [[null, "free"], [null, "out of service", "cross"]];
    if (this.by === "slowdown") return this.worst ? [1, 1.2, 1.4, 1.6, 1.8].map((value) => [this.slowdownColour(value), `${value}x the median`]).concat(marks.slice(1)) : [[null, "no slowdowns are known"]];
    if (this.by === "type") return [...this.named(this.types, [...new Set(this.board.nodes.map((node) => node.gpu_type))], "type"), [null, "free", "half"], marks[1]];
    const two = this.board.gpus.some((jobs) => jobs.length > 1) ? [[null, "two jobs on one GPU", "two"]] : [];
    const others = this.othersJobs ? [[OTHER, "another user's job"]] : [];
    if (this.by === "state") return ["running", "starting", "stopping"].map((state) => [stateColour(state), state, CHANGING.has(state) ? "half" : null]).concat(marks, two);
    const changing = [[null, "starting or stopping", "half"]];
    if (this.by === "user") return [...this.named(this.users, this.heldBy, "user"), ...marks, ...changing, ...two, ...others];
    return [[jobColour("1"), "a colour per job"], ...marks, ...changing, ...two, ...others];
  }

  /** Those with a colour of their own, and how many have none. */
  named(colours, names, noun) {
    const own = names.filter((name) => colours.of(name) !== OTHER), others = names.length - own.length;
    return own.map((name) => [colours.of(name), name]).concat(others ? [[OTHER, `${count(others, `other ${noun}`)}`]] : []);
  }

  describe(gpu) {
    const board = this.board, lines = [`${board.gpuName(gpu)}, ${this.typeOf(gpu)}`];
    for (const id of board.gpus[gpu]) {
      const job = board.jobs.get(id);
      lines.push(job ? `job ${id} ${job.name}, ${job.user}, ${job.state}` : `job ${id} of another user`);
    }
    if (!board.gpus[gpu].length) lines.push(gpu in board.out ? `out of service: ${board.out[gpu]}` : "free");
    for (const [name, values] of Object.entries(board.slowdowns)) lines.push(`${values[gpu]}x the median for class ${name}`);
    return lines.concat(board.flags[gpu] ?? []);
  }
}
