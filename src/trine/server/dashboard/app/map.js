// All GPUs of a cluster on one canvas: racks, in them nodes, in them GPUs. Thousands at a glance, each of them reachable
// with the pointer and with the arrow keys.

import { themeColour } from "./colours.js";
import { el, setText } from "./elements.js";
import { visible } from "./format.js";

const SIZES = [[300, 20], [1200, 14], [3000, 10], [6000, 8], [Infinity, 6]]; // GPUs up to, pixels of one
const LABEL_PX = 16;

export class ClusterMap {
  /** `paint(gpu)` gives {fill, mark} of a GPU, `describe(gpu)` lines of text, `open(gpu)` is what a click does. */
  constructor(board, { paint, describe, open }) {
    this.board = board;
    Object.assign(this, { paint, describe, open });
    this.canvas = el("canvas", {
      tabindex: 0, role: "application", "aria-label": "Map of all GPUs; arrow keys move, Enter opens the job",
      onpointermove: (event) => { if (event.pointerType !== "touch") this.point(event); },
      onpointerleave: (event) => { if (event.pointerType !== "touch") this.choose(-1); },
      onclick: (event) => this.click(event),
      onkeydown: (event) => this.key(event), onblur: () => this.choose(-1),
    });
    this.tip = el("div", { class: "tip", role: "status", hidden: true });
    this.element = el("div", { class: "map" }, this.canvas, this.tip);
    this.chosen = -1;
    this.resized = new ResizeObserver(() => this.layout());
    this.resized.observe(this.element);
  }

  close() {
    this.resized.disconnect();
  }

  /** Where every GPU, node and rack is, for the width there is. */
  layout() {
    const width = Math.max(200, this.element.clientWidth);
    const total = this.board.gpus.length;
    this.size = SIZES.find(([most]) => total <= most)[1];
    this.cells = [];
    this.labels = [];
    const racks = new Map();
    let gpu = 0;
    for (const node of this.board.nodes) {
      if (!racks.has(node.rack)) racks.set(node.rack, []);
      racks.get(node.rack).push({ node, first: gpu });
      gpu += node.gpus;
    }
    let x = 0, y = 0, rowHeight = 0;
    for (const [rack, nodes] of racks) {
      const block = this.rackBlock(nodes, width);
      if (x > 0 && x + block.width > width) { x = 0; y += rowHeight + 14; rowHeight = 0; }
      this.labels.push({ text: visible(rack), x, y: y + 11, strong: true });
      for (const cell of block.cells) this.cells[cell.gpu] = { x: x + cell.x, y: y + LABEL_PX + cell.y };
      for (const label of block.labels) this.labels.push({ ...label, x: x + label.x, y: y + LABEL_PX + label.y });
      x += block.width + 18;
      rowHeight = Math.max(rowHeight, block.height + LABEL_PX);
    }
    this.resize(width, y + rowHeight + 2);
    this.draw();
  }

  /** The nodes of a rack: small ones beside each other, about as wide as high. */
  rackBlock(nodes, width) {
    const named = this.size >= 14;
    const across = Math.min(8, Math.max(...nodes.map(({ node }) => node.gpus)));
    const nodeWidth = Math.max(across * this.size + (this.size > 8 ? 8 : 4), named ? 64 : 0);
    const columns = Math.max(1, Math.min(Math.floor(width / nodeWidth), Math.ceil(Math.sqrt(nodes.length / 2))));
    const cells = [], labels = [];
    const heights = new Array(Math.ceil(nodes.length / columns)).fill(0);
    nodes.forEach(({ node }, i) => {
      const row = Math.floor(i / columns);
      heights[row] = Math.max(heights[row], Math.ceil(node.gpus / across) * this.size + (named ? LABEL_PX + 4 : 3));
    });
    nodes.forEach(({ node, first }, i) => {
      const x = (i % columns) * nodeWidth;
      const y = heights.slice(0, Math.floor(i / columns)).reduce((sum, height) => sum + height, 0);
      if (named) labels.push({ text: visible(node.name), x, y: y + 11, width: nodeWidth - 6 });
      for (let g = 0; g < node.gpus; g++) {
        cells.push({
          gpu: first + g, x: x + (g % across) * this.size,
          y: y + (named ? LABEL_PX - 2 : 0) + Math.floor(g / across) * this.size,
        });
      }
    });
    return { cells, labels, width: columns * nodeWidth - 4, height: heights.reduce((sum, height) => sum + height, 0) };
  }

  resize(width, height) {
    const scale = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(height * scale);
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    this.context = this.canvas.getContext("2d");
    this.context.scale(scale, scale);
  }

  draw() {
    if (!this.cells || this.cells.length !== this.board.gpus.length) { this.layout(); return; }
    const c = this.context;
    c.clearRect(0, 0, this.canvas.width, this.canvas.height);
    const line = themeColour("line"), ink = themeColour("ink"), muted = themeColour("muted");
    const side = this.size - (this.size > 8 ? 2 : 1);
    this.cells.forEach(({ x, y }, gpu) => this.cell(c, this.paint(gpu), x, y, side, line, ink));
    for (const label of this.labels) {
      c.font = `${label.strong ? 600 : 400} 11px system-ui, sans-serif`;
      c.fillStyle = label.strong ? ink : muted;
      c.fillText(label.text, label.x, label.y, label.width);
    }
    if (this.chosen >= 0 && this.cells[this.chosen]) {
      const { x, y } = this.cells[this.chosen];
      c.strokeStyle = ink;
      c.lineWidth = 2;
      c.strokeRect(x - 1, y - 1, side + 2, side + 2);
    }
  }

  /** Marks besides colour: out of service a cross, a change under way a half, two jobs a cut corner. */
  cell(c, { fill, mark }, x, y, side, line, ink) {
    if (fill) {
      c.fillStyle = fill;
      c.fillRect(x, y, side, mark === "half" ? side / 2 : side);
    }
    if (!fill || mark === "half") {
      c.strokeStyle = line;
      c.lineWidth = 1;
      c.strokeRect(x + 0.5, y + 0.5, side - 1, side - 1);
    }
    if (mark === "cross" || mark === "two") {
      c.strokeStyle = ink;
      c.lineWidth = this.size > 8 ? 1.5 : 1;
      c.beginPath();
      c.moveTo(x, y + side);
      c.lineTo(x + side, y);
      if (mark === "cross") { c.moveTo(x, y); c.lineTo(x + side, y + side); }
      c.stroke();
    }
  }

  /** A finger cannot point without a click: the first one tells what is there, the second opens it. */
  click(event) {
    const before = this.chosen;
    this.point(event);
    if (this.chosen >= 0 && (event.pointerType !== "touch" || this.chosen === before)) this.open(this.chosen);
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    this.choose(this.cells?.findIndex((cell) => cell && x >= cell.x && x < cell.x + this.size
      && y >= cell.y && y < cell.y + this.size) ?? -1);
  }

  key(event) {
    const moves = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
    if (event.key === "Enter" && this.chosen >= 0) this.open(this.chosen);
    if (event.key === "Escape") this.choose(-1);
    if (!(event.key in moves)) return;
    event.preventDefault();
    this.choose(this.chosen < 0 ? 0 : this.neighbour(...moves[event.key]));
  }

  /** The nearest GPU in a direction; the present one if there is none. */
  neighbour(dx, dy) {
    const from = this.cells[this.chosen];
    let best = this.chosen, least = Infinity;
    this.cells.forEach((cell, gpu) => {
      const along = (cell.x - from.x) * dx + (cell.y - from.y) * dy;
      const aside = Math.abs((cell.x - from.x) * dy) + Math.abs((cell.y - from.y) * dx);
      if (along > 0 && along + 4 * aside < least) { least = along + 4 * aside; best = gpu; }
    });
    return best;
  }

  choose(gpu) {
    if (gpu === this.chosen) return;
    this.chosen = gpu;
    this.draw();
    this.tip.hidden = gpu < 0;
    if (gpu < 0) return;
    setText(this.tip, this.describe(gpu).map((line) => line.replaceAll("\n", " ")).join("\n"));
    const { x, y } = this.cells[gpu];
    this.tip.style.left = `${Math.min(x, Math.max(0, this.element.clientWidth - 260))}px`;
    this.tip.style.top = `${y + this.size + 6}px`;
  }
}
