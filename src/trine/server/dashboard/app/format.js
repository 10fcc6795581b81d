// Values as text: durations, times, numbers. Times are seconds.

/** 45 s, 12 min, 3 h 20 min, 2 d 4 h; empty for none. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "";
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min${s < 600 && s % 60 ? ` ${s % 60} s` : ""}`;
  if (s < 86400) return `${Math.floor(s / 3600)} h${s % 3600 >= 60 ? ` ${Math.floor((s % 3600) / 60)} min` : ""}`;
  return `${Math.floor(s / 86400)} d${s % 86400 >= 3600 ? ` ${Math.floor((s % 86400) / 3600)} h` : ""}`;
}

/** 45s, 12m, 3h20m, 2d4h: for what has little room. */
export function short(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s}s`;
  if (s < 3600) return `${Math.round(s / 60)}m`;
  const [large, small, of, part] = s < 86400 ? ["h", "m", 3600, 60] : ["d", "h", 86400, 3600];
  const rest = Math.floor((s % of) / part);
  return `${Math.floor(s / of)}${large}${rest ? `${rest}${small}` : ""}`;
}

const DAY = new Intl.DateTimeFormat([], { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const MINUTE = new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const CLOCK = new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });

/** A moment: of a daemon the time of day, with the date if it is another day; of a simulation the time since its start. Rough: to the minute. */
export function moment(at_s, board, rough = false) {
  if (at_s === null || at_s === undefined) return "";
  if (!board.live) return `${duration(at_s - board.begin_s)} in`;
  const date = new Date(at_s * 1000);
  return Math.abs(at_s - board.now_s) < 43200 ? (rough ? MINUTE : CLOCK).format(date) : DAY.format(date);
}

/** Three digits or so, thousands apart. */
export function number(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "";
  if (Math.abs(value) >= 1000) return Math.round(value).toLocaleString("en");
  return Number.isInteger(value) ? String(value) : value.toPrecision(3).replace(/\.?0+$/, "");
}

export const percent = (part) => {
  if (part === null || !Number.isFinite(part)) return "";
  const nearly = part < 1 && part > 0.99; // what is not whole is not said to be
  return `${(nearly ? Math.floor(part * 1000) / 10 : part * 100).toFixed(part < 0.0995 || nearly ? 1 : 0)} %`;
};

/** "1 GPU", "4 GPUs". */
export const count = (n, noun) => `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;

/** Text whose control characters show as signs; those of terminals, of writing direction and of lines do nothing. */
export function visible(text) {
  return String(text ?? "").replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g,
    (sign) => (sign < " " ? String.fromCharCode(0x2400 + sign.charCodeAt(0)) : "\ufffd"));
}
