// Colours that colour-blind readers tell apart (Okabe and Ito), and a scale that grows in lightness (cividis). States
// also differ in shape on the map and in words everywhere: no colour says anything alone.

export const SET = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#8c7bd1"];
const CIVIDIS = [[0, 34, 78], [53, 69, 108], [102, 105, 112], [148, 142, 119], [195, 182, 109], [254, 232, 56]];

const STATES = {
  waiting: "#56b4e9", held: "#cc79a7", "set aside": "#cc79a7", starting: "#f0e442", running: "#009e73",
  stopping: "#e69f00", done: "#7f8a96", failed: "#d55e00", cancelled: "#7f8a96", "timed out": "#d55e00",
};
export const stateColour = (state) => STATES[state] ?? "#7f8a96";

/** The same name has the same colour at every visit. */
export function nameColour(name) {
  let hash = 2166136261;
  for (let i = 0; i < name.length; i++) hash = Math.imul(hash ^ name.charCodeAt(i), 16777619);
  return SET[(hash >>> 8) % SET.length];
}

export const OTHER = "#9aa4af";

/** A colour of its own for each of some names: the one it has at every visit where that is free, else another. When all are
 * taken the others are grey. A name keeps its colour while it is there. */
export class DistinctColours {
  constructor() {
    this.colours = new Map();
  }

  /** `names` that are there now, those that matter most first. */
  assign(names) {
    const there = new Set(names);
    for (const name of this.colours.keys()) if (!there.has(name)) this.colours.delete(name);
    const taken = new Set(this.colours.values()), free = SET.filter((colour) => !taken.has(colour));
    for (const name of names) {
      if (!free.length) return;
      if (this.colours.has(name)) continue;
      const own = free.indexOf(nameColour(name));
      this.colours.set(name, free.splice(Math.max(own, 0), 1)[0]);
    }
  }

  of(name) {
    return this.colours.get(name) ?? OTHER;
  }
}

/** Ids are numbers in order of arrival: jobs that came after each other, and often stand side by side, differ. */
export const jobColour = (id) => (/^\d+$/.test(id) ? SET[Number(id) % SET.length] : nameColour(id));

/** 0 is dark blue, 1 is yellow. On dark paper it begins at a grey that stands off it: `from` is `scaleBegin()`. */
export function scaleColour(part, from) {
  const at = (from + (1 - from) * Math.min(1, Math.max(0, part))) * (CIVIDIS.length - 1);
  const low = Math.min(CIVIDIS.length - 2, Math.floor(at));
  const mix = CIVIDIS[low].map((value, i) => Math.round(value + (CIVIDIS[low + 1][i] - value) * (at - low)));
  return `rgb(${mix.join(",")})`;
}

export const scaleBegin = () => (isDark(themeColour("paper")) ? 0.4 : 0);
const isDark = (colour) => parseInt(colour.slice(1, 3), 16) < 128;

/** A colour of the style sheet. */
export const themeColour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
