// The end of a job's log, which follows what the job writes; a broken connection goes on where it was.

import { el, fill, setText } from "./elements.js";
import { visible } from "./format.js";
import { getJson, request } from "./session.js";

const TAIL_LINES = 200, MOST_CHARACTERS = 300000;

export class LogTail {
  constructor(jobId) {
    this.path = `/v1/jobs/${encodeURIComponent(jobId)}/log`;
    this.text = "";
    this.follow = el("input", { type: "checkbox", id: "follow", checked: true });
    this.state = el("span", { class: "muted", role: "status" });
    this.pre = el("pre", { class: "log", tabindex: 0, "aria-label": "What the job writes" });
    this.rank = el("input", { type: "number", id: "rank", min: 0, max: 1000000, value: 0, size: 4, onchange: () => this.restart() });
    this.element = el("section", {}, el("h2", {}, "Log"), el("div", { class: "controls" },
      el("label", { class: "choice" }, this.follow, el("span", {}, "follow")),
      el("label", { class: "choice" }, el("span", {}, "rank"), this.rank), this.state), this.pre);
    this.open = true;
    this.restart();
  }

  close() {
    this.open = false;
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
      this.abort = new AbortController();
      try {
        const rank = Number(this.rank.value) || 0;
        offset ??= (await getJson(`${this.path}/offset?tail=${TAIL_LINES}&rank=${rank}`)).offset;
        const response = await request(`${this.path}?offset=${offset}&rank=${rank}&follow=true`, { signal: this.abort.signal });
        setText(this.state, this.text ? "" : "Nothing yet.");
        const reader = response.body.getReader(), decoder = new TextDecoder();
        for (;;) {
          const { value, done } = await reader.read();
          if (done) break;
          setText(this.state, "");
          offset += value.length;
          this.add(decoder.decode(value, { stream: true }));
        }
        setText(this.state, this.text ? "The job has ended." : "The job has ended, and wrote nothing.");
        return;
      } catch (error) {
        if (!this.open || turn !== this.turn) return;
        if (error.status === 404) { setText(this.state, error.message); return; }
        setText(this.state, "connection lost, trying again");
        await new Promise((resolve) => setTimeout(resolve, 1000));
      }
    }
  }

  /** Escapes of a terminal's colours are left out, other control characters show as signs. */
  add(text) {
    this.text = (this.text + visible(text.replace(/\u001b\[[0-9;]*m/g, "").replace(/\r\n/g, "\n"))).slice(-MOST_CHARACTERS);
    this.drawn ??= requestAnimationFrame(() => {
      this.drawn = null;
      this.pre.textContent = this.text;
      if (this.follow.checked) this.pre.scrollTop = this.pre.scrollHeight;
    });
  }
}
