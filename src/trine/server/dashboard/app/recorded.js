// Recorded runs: the same boards, at the time that a slider shows, for all runs at once.

import { el, setText } from "./elements.js";
import { duration } from "./format.js";

const STEPS = 1000, PLAY_MS = 250, RUNNING_MS = 1000, RECORDED_MS = 3000;

export class RecordedRuns {
  constructor(boards, condition) {
    this.boards = boards;
    this.condition = condition;
    this.slider = el("input", { type: "range", min: 0, max: STEPS, step: "any", value: 0, "aria-label": "Time", oninput: () => this.moved() });
    this.label = el("output", {});
    this.playing = null;
    this.play = el("button", { type: "button", onclick: () => this.toggle() }, "Play");
    this.element = el("div", { class: "time" }, this.play, this.slider, this.label);
  }

  async start() {
    await this.spans();
    if (this.running) this.slider.value = String(STEPS); // of a run that goes on, what is now
    this.moved();
    this.again();
  }

  /** A run may still go on, or be made anew. */
  again() {
    setTimeout(async () => { await this.spans(); this.again(); }, this.running ? RUNNING_MS : RECORDED_MS);
  }

  /** From when to when the runs last. While they go on, the end of the slider means now and another time stays. */
  async spans() {
    try {
      const spans = await Promise.all(this.boards.map((board) => board.ask("span")));
      const versions = spans.map(({ version }) => version).join();
      const shown_s = this.begin_s === undefined || this.following ? null : this.at_s;
      this.begin_s = Math.min(...spans.map(({ begin_s }) => begin_s));
      this.end_s = Math.max(...spans.map(({ end_s }) => end_s));
      this.running = spans.some(({ running }) => running);
      if (shown_s !== null) this.slider.value = String(Math.min(STEPS - 1, STEPS * (shown_s - this.begin_s) / (this.end_s - this.begin_s || 1)));
      this.condition(this.running ? "running" : spans.some(({ stopped }) => stopped) ? "stopped before its end" : "recorded");
      if (this.versions !== undefined && versions !== this.versions) this.moved();
      this.versions = versions;
    } catch (error) {
      this.condition(error.status === 401 ? "logged out" : "lost");
    }
  }

  get following() {
    return Number(this.slider.value) >= STEPS;
  }

  get at_s() {
    return this.begin_s + (Number(this.slider.value) / STEPS) * (this.end_s - this.begin_s);
  }

  /** Only the newest time is asked for: while one answer is awaited, the moves between are left out. */
  async moved() {
    if (this.begin_s === undefined) return; // the first answer begins it
    setText(this.label, `${duration(this.at_s - this.begin_s)} of ${duration(this.end_s - this.begin_s)}`);
    this.wanted = this.at_s;
    if (this.asking) return;
    this.asking = true;
    try {
      while (this.wanted !== null) {
        const at_s = this.wanted;
        this.wanted = null;
        await Promise.all(this.boards.map(async (board) => board.take("snapshot", await board.ask(`board?at=${at_s}`))));
      }
    } catch {
      this.condition("lost");
    } finally {
      this.asking = false;
    }
  }

  toggle() {
    if (!this.playing && this.following && !this.running) { this.slider.value = "0"; this.moved(); } // once more from the beginning
    if (this.playing) { clearInterval(this.playing); this.playing = null; }
    else this.playing = setInterval(() => this.step(), PLAY_MS);
    setText(this.play, this.playing ? "Pause" : "Play");
  }

  step() {
    if (this.following) { this.toggle(); return; }
    this.slider.value = String(Number(this.slider.value) + 2);
    this.moved();
  }
}
