// Small plots on a canvas: lines over time, and bars of attempts. Values are read with the pointer and told as text.

import { SET, themeColour } from "./colours.js";
import { el } from "./elements.js";
import { number } from "./format.js";

const STRETCHES_PX = 54, LEFT = 66, BOTTOM = 20, TOP = 8, DASHES = [[], [6, 3], [2, 2], [8, 3, 2, 3]];

/** Lines over time: `series` are {name, values}, all along `times`; `format` makes texts of values. */
export function lineChart(title, times, series, { format = number, time = number, height = 170, from = 0, least = 1 } = {}) {
  const canvas = el("canvas", { class: "chart", role: "img", "aria-label": summary(title, series, format) });
  const told = el("span", { class: "muted" });
  const legend = el("div", { class: "legend" }, series.length > 1 ? series.map(({ name }, i) => el("span", {}, swatch(SET[i % SET.length]), name)) : null);
  const draw = (at = null) => drawLines(canvas, times, series, { format, time, height, from, least, at });
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    const at = nearest(times, (event.clientX - box.left - LEFT) / (box.width - LEFT - 6));
    if (at < 0) return;
    told.textContent = ` ${time(times[at])}: ${series.map(({ name, values }) => `${series.length > 1 ? `${name} ` : ""}${format(values[at])}`).join(", ")}`;
    draw(at);
  });
  new ResizeObserver(() => draw()).observe(canvas);
  return el("section", {}, el("h2", {}, title, told), legend, canvas);
}

function swatch(colour) {
  const made = el("i");
  made.style.background = colour;
  return made;
}

function summary(title, series, format) {
  return `${title}. ${series.map(({ name, values }) => `${name}: last ${format(values.at(-1))}, highest ${format(Math.max(...values.filter(Number.isFinite)))}`).join("; ")}`;
}

function nearest(times, part) {
  if (!times.length) return -1;
  const wanted = times[0] + Math.min(1, Math.max(0, part)) * (times.at(-1) - times[0]);
  let low = 0, high = times.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** A context in CSS pixels. */
export function prepare(canvas, height) {
  const width = canvas.clientWidth || 300, scale = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  context.font = "11px system-ui, sans-serif";
  return [context, width];
}

function drawLines(canvas, times, series, { format, time, height, from, least, at }) {
  const [c, width] = prepare(canvas, height);
  const finite = series.flatMap(({ values }) => values).filter(Number.isFinite);
  const top = niceTop(Math.max(...finite, from + least), from), begin = times[0] ?? 0, end = times.at(-1) ?? 1;
  const x = (t) => LEFT + ((t - begin) / Math.max(1e-9, end - begin)) * (width - LEFT - 6);
  const y = (value) => TOP + (1 - (value - from) / (top - from)) * (height - TOP - BOTTOM);
  c.strokeStyle = themeColour("line");
  c.fillStyle = themeColour("muted");
  for (const value of [from, top > 10 ? top / 2 : (from + top) / 2, top]) {
    c.beginPath(); c.moveTo(LEFT, y(value)); c.lineTo(width - 6, y(value)); c.stroke();
    c.textAlign = "right";
    c.fillText(format(value), LEFT - 6, y(value) + 4);
  }
  c.textAlign = "left"; c.fillText(time(begin), LEFT, height - 5);
  if (end > begin) { c.textAlign = "right"; c.fillText(time(end), width - 6, height - 5); }
  series.forEach(({ values }, i) => {
    c.strokeStyle = SET[i % SET.length]; c.lineWidth = 1.75; c.setLineDash(DASHES[i % DASHES.length]);
    c.fillStyle = c.strokeStyle;
    c.beginPath();
    let on = false;
    values.forEach((value, k) => {
      if (!Number.isFinite(value)) { on = false; return; }
      if (on) c.lineTo(x(times[k]), y(value)); else c.moveTo(x(times[k]), y(value));
      on = true;
      if (values.length < 40) c.fillRect(x(times[k]) - 2, y(value) - 2, 4, 4);
    });
    c.stroke();
  });
  c.setLineDash([]);
  if (at !== null) { c.strokeStyle = themeColour("ink"); c.lineWidth = 1; c.beginPath(); c.moveTo(x(times[at]), TOP); c.lineTo(x(times[at]), height - BOTTOM); c.stroke(); }
}

function niceTop(most, from) {
  const step = 10 ** Math.floor(Math.log10(Math.max(most - from, 1e-9)));
  const rise = [1, 1.5, 2, 3, 4, 5, 8, 10].map((factor) => factor * step).find((top) => top >= most - from - 1e-12);
  return rise > 10 && rise >= most ? rise : from + rise; // 30, not 31
}

/** Stretches of time in one row: {begin_s, end_s, colour, text}. */
export class Stretches {
  constructor(label) {
    this.canvas = el("canvas", { class: "chart", role: "img", "aria-label": label });
    this.canvas.style.height = `${STRETCHES_PX}px`; // also before there is anything to draw
    this.element = el("div", {}, this.canvas);
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  set(parts, begin_s, end_s, time) {
    Object.assign(this, { parts, begin_s, end_s, time });
    this.canvas.setAttribute("aria-label", `Attempts: ${parts.filter((part) => part.text).map((part) => part.text).join("; ") || "none"}`);
    this.draw();
  }

  draw() {
    if (!this.parts) return;
    const [c, width] = prepare(this.canvas, STRETCHES_PX);
    const x = (t) => ((t - this.begin_s) / Math.max(1e-9, this.end_s - this.begin_s)) * (width - 2) + 1;
    c.fillStyle = themeColour("panel");
    c.fillRect(0, 6, width, 26);
    for (const part of this.parts) {
      const left = x(part.begin_s), wide = Math.max(1.5, x(part.end_s) - left);
      c.fillStyle = part.colour;
      c.fillRect(left, part.thin ? 16 : 6, wide, part.thin ? 6 : 26);
      if (part.text && wide > 40) { c.fillStyle = "#101418"; c.textAlign = "left"; c.fillText(part.text, left + 5, 23, wide - 8); }
    }
    c.fillStyle = themeColour("muted");
    c.textAlign = "left"; c.fillText(this.time(this.begin_s), 1, 48);
    c.textAlign = "right"; c.fillText(this.time(this.end_s), width - 1, 48);
  }
}
