// Server-sent events over fetch: EventSource cannot send the proof. A broken connection is begun again, with the id of
// the last event, so that nothing is missed and nothing is sent twice.

import { request } from "./session.js";
import { sight } from "./sight.js";

const DEAD_AFTER_MS = 15000; // the server sends something every 5 s
const PAUSES_MS = [250, 500, 1000, 2000, 4000];

export class Stream {
  /** `handle(kind, value)` gets events, `condition(text)` "live", "lost" or "logged out". */
  constructor(path, handle, condition) {
    this.path = path;
    this.handle = handle;
    this.condition = condition;
    this.since = "";
    this.failures = 0;
    this.open = true;
    sight.addEventListener("leave", () => this.abort?.abort());
    this.run();
  }

  close() {
    this.open = false;
    this.abort?.abort();
  }

  async run() {
    while (this.open) {
      await sight.returned();
      try {
        await this.connect();
        this.failures = 0;
      } catch (error) {
        if (!this.open) return;
        if (!sight.inSight) continue; // given up on purpose; what changes meanwhile is sent when the page is shown again
        if (error.status === 401) {
          this.open = false;
          this.condition("logged out");
          return;
        }
        this.condition("lost");
        const pause = PAUSES_MS[Math.min(this.failures++, PAUSES_MS.length - 1)];
        await new Promise((resolve) => setTimeout(resolve, pause));
      }
    }
  }

  async connect() {
    this.abort = new AbortController();
    let alive = setTimeout(() => this.abort.abort(), DEAD_AFTER_MS);
    try {
      const response = await request(`${this.path}?since=${encodeURIComponent(this.since)}`, { signal: this.abort.signal });
      this.condition("live");
      this.failures = 0;
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      const parser = new EventParser((event) => this.take(event));
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        clearTimeout(alive);
        alive = setTimeout(() => this.abort.abort(), DEAD_AFTER_MS);
        parser.push(value);
      }
    } finally {
      clearTimeout(alive);
    }
  }

  take(event) {
    this.handle(event.event, JSON.parse(event.data));
    this.since = event.id;
  }
}

/** Cuts a stream of text into events. Parts are joined once per event: a snapshot comes in a hundred pieces. */
export class EventParser {
  constructor(take) {
    this.take = take;
    this.parts = [];
  }

  push(text) {
    let from = 0;
    if (this.parts.length && text.startsWith("\n") && this.parts.at(-1).endsWith("\n")) {
      this.finish();
      from = 1;
    }
    for (let end; (end = text.indexOf("\n\n", from)) >= 0; from = end + 2) {
      this.parts.push(text.slice(from, end));
      this.finish();
    }
    if (from < text.length) this.parts.push(text.slice(from));
  }

  finish() {
    const event = {};
    for (const line of this.parts.join("").split("\n")) {
      const at = line.indexOf(": ");
      if (at > 0) event[line.slice(0, at)] = line.slice(at + 2);
    }
    this.parts = [];
    if (event.data !== undefined) this.take(event);
  }
}
