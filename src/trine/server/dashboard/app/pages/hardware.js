// The hardware: which GPUs are slow and by what evidence, how GPUs of one type vary, what is out of service.

import { scaleBegin, scaleColour, themeColour } from "../colours.js";
import { prepare } from "../chart.js";
import { choice, el, fill, smallTable } from "../elements.js";
import { count, number } from "../format.js";

const MOST_ROWS = 200;

export class HardwarePage {
  constructor(root, board) {
    this.board = board;
    this.chosen = "";
    this.content = el("div", {});
    fill(root, el("h1", {}, "Hardware"), this.content);
  }

  update() {
    const stamp = JSON.stringify([this.board.flags, this.board.link_loads, this.board.out, this.board.nodes.length, Object.keys(this.board.slowdowns), this.chosen]);
    if (stamp === this.stamp) return;
    this.stamp = stamp;
    const choosing = this.content.contains(document.activeElement); // the choice of a class is made anew, too
    fill(this.content, this.types(), this.evidence(), this.outOfService(), this.variability(), this.links());
    if (choosing) this.content.querySelector("select")?.focus();
  }

  types() {
    const types = new Map();
    for (const node of this.board.nodes) {
      const found = types.get(node.gpu_type) ?? { nodes: 0, gpus: 0, racks: new Set() };
      found.nodes++;
      found.gpus += node.gpus;
      found.racks.add(node.rack);
      types.set(node.gpu_type, found);
    }
    return smallTable(["GPU type", "GPUs", "nodes", "racks"], [...types].map(([type, { gpus, nodes, racks }]) =>
      [type, { number: number(gpus) }, { number: number(nodes) }, { number: number(racks.size) }]));
  }

  evidence() {
    const flags = Object.entries(this.board.flags);
    return el("section", {}, el("h2", {}, "GPUs whose speed has drifted"), flags.length
      ? smallTable(["GPU", "evidence"], flags.slice(0, MOST_ROWS).map(([gpu, sentences]) => [this.board.gpuName(Number(gpu)), { sentence: sentences.join(" ") }]))
      : el("p", { class: "muted" }, "None: what jobs reported agrees with the profile."));
  }

  outOfService() {
    const whole = new Set(this.board.nodes.filter((node) => node.state !== "up").map(({ name }) => name));
    const out = Object.entries(this.board.out).filter(([gpu]) => !whole.has(this.board.gpuName(Number(gpu)).replace(/:\d+$/, "")));
    const nodes = this.board.nodes.filter((node) => node.state !== "up");
    return el("section", {}, el("h2", {}, "Out of service"), out.length || nodes.length
      ? smallTable(["what", "why"], [...nodes.map((node) => [`${node.name} (${node.state})`, { sentence: node.reason }]),
        ...out.slice(0, MOST_ROWS).map(([gpu, why]) => [this.board.gpuName(Number(gpu)), { sentence: why }])])
      : el("p", { class: "muted" }, "Nothing."));
  }

  variability() {
    const classes = Object.keys(this.board.slowdowns);
    const heading = el("h2", {}, "Variability: slowdown of each GPU against the median of its type");
    if (!classes.length) return el("section", {}, heading, el("p", { class: "muted" }, "No profile is known: all GPUs of a type count as equal. trine profile gpus measures them."));
    const chosen = classes.includes(this.chosen) ? this.chosen : classes[0], values = this.board.slowdowns[chosen];
    const slowest = values.map((value, gpu) => [value, gpu]).sort(([a], [b]) => b - a).slice(0, 20);
    const canvas = el("canvas", { class: "chart", role: "img", "aria-label": `Distribution for class ${chosen}: from ${Math.min(...values)} to ${Math.max(...values)}` });
    new ResizeObserver(() => histogram(canvas, values)).observe(canvas);
    return el("section", {}, heading, choice("Application class", classes.map((name) => [name, name]), chosen, (value) => { this.chosen = value; this.update(); }),
      canvas, el("h2", {}, "The slowest"), smallTable(["GPU", "slowdown"], slowest.map(([value, gpu]) => [this.board.gpuName(gpu), { number: `${number(value)}x` }])));
  }

  links() {
    const loads = this.board.link_loads;
    const none = this.board.live
      ? "Nothing is sent over links that are modelled: the cluster file states no links, or no gang spans nodes now."
      : "The files of a run do not tell the load of single links; its report shows the busiest over time.";
    return el("section", {}, el("h2", {}, "Links between nodes"), loads.length
      ? smallTable(["link", "carries (GB/s)", "load", "", "jobs"], loads.map(({ name, load, capacity, jobs }) =>
        [name, { number: number(capacity / 1e9) }, { number: `${Math.round(load * 100)} %` }, loadBar(load), { number: number(jobs) }]))
      : el("p", { class: "muted" }, none));
  }
}

function loadBar(load) {
  const inner = el("i"), made = el("span", { class: "bar", role: "img", "aria-label": `${Math.round(load * 100)} % of the link` }, inner);
  inner.style.width = `${Math.min(100, load * 100)}%`;
  return made;
}

function histogram(canvas, values) {
  const [c, width] = prepare(canvas, 150), from = scaleBegin(), low = Math.min(...values, 0.95), high = Math.max(...values, 1.05), bins = new Array(40).fill(0);
  for (const value of values) bins[Math.min(39, Math.floor(((value - low) / (high - low)) * 40))]++;
  const most = Math.max(...bins), step = (width - 10) / 40;
  bins.forEach((n, i) => {
    c.fillStyle = scaleColour((low + ((i + 0.5) / 40) * (high - low) - 0.9) / 0.9, from);
    c.fillRect(5 + i * step, 125 - (n / most) * 115, step - 1, (n / most) * 115);
  });
  c.fillStyle = themeColour("muted");
  c.textAlign = "left"; c.fillText(`${low.toFixed(2)}x`, 5, 142);
  c.textAlign = "right"; c.fillText(`${high.toFixed(2)}x, ${count(values.length, "GPU")}`, width - 5, 142);
}
