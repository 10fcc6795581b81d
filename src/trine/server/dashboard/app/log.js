// The end of a job's log, which follows what the job writes; a connection that broke, or was given up while the page was
// hidden, goes on where it was.

import { el, fill, setText } from "./elements.js";
import { visible } from "./format.js";
import { getJson, request } from "./session.js";
import { sight } from "./sight.js";

const TAIL_LINES = 200, MOST_CHARACTERS = 300000;

export class LogTail {
  constructor(jobId) {
    this.job = `/v1/jobs/${encodeURIComponent(jobId)}`;
    this.path = `${this.job}/log`;
    this.text = "";
    this.follow = el("input", { type: "checkbox", id: "follow", checked: true });
    this.state = el("span", { class: "muted", role: "status" });
    this.pre = el("pre", { class: "log", tabindex: 0, "aria-label": "What the job writes" });
    this.rank = el("input", { type: "number", id: "rank", min: 0, max: 1000000, value: 0, size: 4, onchange: () => this.restart() });
    this.element = el("section", {}, el("h2", {}, "Log"), el("div", { class: "controls" },
      el("label", { class: "choice" }, this.follow, el("span", {}, "follow")),
      el("label", { class: "choice" }, el("span", {}, "rank"), this.rank), this.state), this.pre);
    this.open = true;
    this.left = () => this.abort?.abort();
    sight.addEventListener("leave", this.left);
    this.restart();
  }

  close() {
    this.open = false;
    sight.removeEventListener("leave", this.left);
    this.abort?.abort();
  }

  restart() {
    this.abort?.abort();
    this.text = "";
    fill(this.pre);
    this.run((this.turn = (this.turn ?? 0) + 1));
  }

  /** Until the job has ended and all of its log is here. */
  async run(turn) {
    let offset = null;
    while (this.open && turn === this.turn) {
      await sight.returned();
      this.abort = new AbortController();
      try {
        const rank = Number(this.rank.value) || 0;
        offset ??= (await getJson(`${this.path}/offset?tail=${TAIL_LINES}&rank=${rank}`)).offset;
        const response = await request(`${this.path}?offset=${offset}&rank=${rank}&follow=true`, { signal: this.abort.signal });
        setText(this.state, this.text ? "" : "Nothing is written yet.");
        const reader = response.body.getReader(), decoder = new TextDecoder();
        for (;;) {
          const { value, done } = await reader.read();
          if (done) break;
          setText(this.state, "");
          offset += value.length;
          this.add(decoder.decode(value, { stream: true }));
        }
        if (await this.ended()) return;
      } catch (error) {
        if (!this.open || turn !== this.turn) return;
        if (!sight.inSight) continue;
        if (error.status === 404) { setText(this.state, error.message); return; }
        setText(this.state, "connection lost, trying again");
        await new Promise((resolve) => setTimeout(resolve, 1000));
      }
    }
  }

  /** What is sent ends with the job, but also with a daemon that is stopped: only the job itself tells. */
  async ended() {
    const { finished_s } = await getJson(this.job);
    if (finished_s === null) { await new Promise((resolve) => setTimeout(resolve, 250)); return false; }
    setText(this.state, this.text ? "The job has ended." : "The job has ended and wrote nothing.");
    return true;
  }

  add(text) {
    const cut = this.text.lastIndexOf("\n") + 1; // the last line may go on, or be begun again
    this.text = (this.text.slice(0, cut) + asOnTerminal(this.text.slice(cut) + text)).slice(-MOST_CHARACTERS);
    if (this.state.textContent) setText(this.state, "");
    this.drawn ??= requestAnimationFrame(() => {
      this.drawn = null;
      this.pre.textContent = visible(this.text.replace(/\r$/, ""));
      if (this.follow.checked) this.pre.scrollTop = this.pre.scrollHeight;
    });
  }
}

/** Escapes of colours are left out, and a line that is begun again (the bar of a progress) replaces what it was. */
function asOnTerminal(text) {
  const lines = text.replace(/\u001b\[[0-9;]*[mK]/g, "").split("\n");
  return lines.map((line, i) => {
    const written = line.replace(/\r+$/, ""), begunAgain = i === lines.length - 1 && written !== line;
    return written.slice(written.lastIndexOf("\r") + 1) + (begunAgain ? "\r" : "");
  }).join("\n");
}
