// One job: where it is and why, its attempts on a timeline, speed against prediction, what it writes, and what to do.

import { ranges } from "../board.js";
import { stateColour } from "../colours.js";
import { Stretches } from "../chart.js";
import { confirmed, el, facts, fill, setText } from "../elements.js";
import { duration, moment, number, percent } from "../format.js";
import { LogTail } from "../log.js";
import { intervalSentence, predictedOf, predictions } from "../predictions.js";
import { post } from "../session.js";
import { elapsed } from "./queue.js";

const ASK_EVERY_MS = 1000;
const GOES_ON = /^(started|running|stopping|moving|told to|shares|has its GPUs|time limit|set aside)|asked by/; // lines of a story that end no attempt

export class JobPage {
  constructor(root, board, { argument }) {
    this.board = board;
    this.root = root;
    this.id = argument;
    this.title = el("h1", {}, `Job ${argument}`);
    this.why = el("div", { id: "why" });
    this.actions = el("div", { class: "controls" });
    this.failure = el("p", { class: "alarm", role: "alert" });
    this.facts = el("div", {});
    this.stretches = new Stretches("Attempts over time");
    this.story = el("ol", { class: "story" });
    this.buttons = { cancel: this.button("cancel", "Cancel"), hold: this.button("hold", "Hold"), release: this.button("release", "Release") };
    fill(root, this.title, this.why, board.live ? this.actions : null, this.failure, this.facts, el("h2", {}, "Attempts"), this.stretches.element,
      el("h2", {}, "Story"), this.story);
    if (board.live) {
      // Not before the job is known: its priority would replace what was typed.
      this.priority = el("input", { type: "number", id: "priority", step: "any", min: -1e6, max: 1e6, disabled: true });
      this.buttons.priority = el("button", { "data-verb": "priority", disabled: true }, "Set");
      fill(this.actions, Object.values(this.buttons).slice(0, 3), el("form", { class: "controls", onsubmit: (event) => this.prioritise(event) },
        el("label", { for: "priority" }, "Priority"), this.priority, this.buttons.priority));
      this.log = new LogTail(argument);
      root.append(this.log.element);
    }
    this.askedMs = -Infinity;
  }

  close() {
    this.closed = true;
    this.log?.close();
  }

  button(verb, text) {
    return el("button", { type: "button", "data-verb": verb, onclick: () => this.ask(verb) }, text);
  }

  async ask(verb, body) {
    if (verb === "cancel" && !await confirmed(`Cancel job ${this.id} for good?`, "Cancel the job", "Leave it")) return;
    setText(this.failure, "");
    try {
      await post(`/v1/jobs/${encodeURIComponent(this.id)}/${verb}`, body);
      this.askedMs = -Infinity;
      this.update();
    } catch (error) {
      setText(this.failure, error.message);
    }
  }

  /** Larger goes first; users within what their queue allows, which the daemon tells. */
  prioritise(event) {
    event.preventDefault();
    if (this.priority.value !== "") this.ask("priority", { priority: Number(this.priority.value) });
  }

  update() {
    const stamp = this.board.now_s;
    if (performance.now() - this.askedMs < ASK_EVERY_MS || this.asking || (stamp === this.stamp && !this.board.live)) return;
    this.askedMs = performance.now();
    this.stamp = stamp;
    this.asking = this.look().finally(() => { this.asking = null; });
  }

  async look() {
    const path = `jobs/${encodeURIComponent(this.id)}`, at = this.board.live ? "" : `?at=${this.board.now_s}`;
    try {
      if (this.board.live) predictions().then((found) => { this.predicted = found; }); // the first may take long: nothing waits for it
      const [explained, speed] = await Promise.all([this.board.ask(`${path}/explain${at}`), this.board.ask(`${path}/speed${at}`)]);
      if (!this.closed) this.show(explained, speed, predictedOf(this.predicted, explained.job));
    } catch (error) {
      if (error.status === 404 || error.status === 422) this.showNothing(error.message); // else the stream says that the connection is lost
    }
  }

  /** There is no such job, or it is another user's: then there is nothing to do here either. */
  showNothing(sentence) {
    this.log?.close();
    fill(this.why, el("p", {}, sentence));
    fill(this.root, this.title, this.why);
  }

  show({ job, sentences, story }, speed, predicted) {
    const element = job.array_index === null || job.array_index === undefined ? "" : `[${job.array_index}]`;
    setText(this.title, `Job ${job.id}${job.name ? ` ${job.name}${element}` : ""}: ${job.state}`);
    const told = sentences.join("\n");
    if (told !== this.told) fill(this.why, sentences.map((text) => el("p", {}, text)));
    this.told = told;
    const live = job.finished_s === null;
    this.buttons.cancel.disabled = !live;
    if (this.priority) {
      this.priority.disabled = this.buttons.priority.disabled = !live;
      if (job.priority !== this.known_priority) this.priority.value = this.known_priority = job.priority; // what is being typed stays
    }
    this.buttons.hold.disabled = !live || job.state === "held";
    this.buttons.release.disabled = !live || !(["held", "set aside"].includes(job.state) || job.reason?.code === "paused");
    fill(this.facts, facts(this.pairs(job, speed, predicted)));
    this.showStory(job, story);
  }

  pairs(job, speed, predicted) {
    const board = this.board, row = board.jobs.get(job.id) ?? job, progress = job.progress;
    const where = (job.placement ?? []).map(({ node, gpus }) => `${node}:${ranges(gpus)}`).join("; ");
    const against = speed.expected_steps_per_s && progress?.steps_per_s ? ` (${percent(progress.steps_per_s / speed.expected_steps_per_s)} of the ${number(speed.expected_steps_per_s)} expected there)` : "";
    return [
      ["user, queue", [job.user, job.queue].filter(Boolean).join(", ")],
      ["GPUs", `${job.gpus}${job.model ? `, model ${job.model}` : ""}${job.app_class ? `, class ${job.app_class}` : ""}`],
      ["where", where],
      ["rank", job.position],
      ["priority", job.priority || ""],
      ["submitted", moment(job.submitted_s, board)],
      [sinceWhat(job), (row.submitted_s ?? Infinity) > board.time_s ? "" : duration(elapsed(row, board))],
      ["time limit", duration(job.max_runtime_s)],
      ["progress", progress ? `step ${number(progress.step)}${progress.total ? ` of ${number(progress.total)}, ${percent(progress.step / progress.total)}` : ""}` : ""],
      ["speed", progress?.steps_per_s ? `${number(progress.steps_per_s)} steps/s${against}` : speed.expected_steps_per_s ? `${number(speed.expected_steps_per_s)} steps/s expected` : ""],
      ["slower by", factors(speed)],
      ["checkpoint", speed.checkpoint_step === null ? "" : `step ${number(speed.checkpoint_step)}${speed.checkpoint_s ? `, ${duration(board.time_s - speed.checkpoint_s)} ago` : ""}`],
      ["work lost", speed.lost_s >= 1 ? duration(speed.lost_s) : ""],
      ["predicted start", predicted?.start_s ? `${intervalSentence(predicted.start_s, board)}. ${predicted.reason ?? ""}` : ""],
      ["predicted end", predicted?.end_s ? intervalSentence(predicted.end_s, board) : job.expected_end_s ? `${moment(job.expected_end_s, board)} at its present pace` : ""],
      ["stopped for others", job.preemptions ? (job.preemptions === 1 ? "once" : `${job.preemptions} times`) : ""],
      ["exit code", job.exit_code],
      ["runs", job.command ? job.command.join(" ") : ""],
    ];
  }

  showStory(job, story) {
    const end_s = job.finished_s ?? this.board.time_s, parts = attempts(story, job, end_s);
    this.stretches.set(parts, job.submitted_s, Math.max(end_s, job.submitted_s + 1), (at) => moment(at, this.board));
    if (story.length === this.told_story && story.at(-1)?.at_s === this.last_s) return;
    this.told_story = story.length;
    this.last_s = story.at(-1)?.at_s;
    fill(this.story, [...story].reverse().map((line) => el("li", {}, el("span", { class: "muted" }, moment(line.at_s, this.board)),
      el("b", {}, line.what), el("span", {}, line.sentence))));
  }
}

/** What `elapsed` counts. */
function sinceWhat({ run_from_s, started_s, finished_s }) {
  if (run_from_s !== null) return "running for";
  if (finished_s !== null) return started_s === null ? "waited" : "from start to end";
  return started_s === null ? "waiting for" : "since submission";
}

const factors = ({ chip, network, sharing }) => [["slow GPUs", chip], ["its place and the links", network], ["a job beside it", sharing]]
  .filter(([, value]) => value && Math.abs(value - 1) > 0.005).map(([text, value]) => `${text} ${value.toFixed(2)}x`).join(", ");

/** Stretches with GPUs and without, from the story. */
function attempts(story, job, end_s) {
  const parts = [];
  let from = job.submitted_s, running = false, n = 0;
  const close = (at_s) => { if (at_s > from) parts.push(running ? { begin_s: from, end_s: at_s, colour: stateColour("running"), text: `attempt ${n}` } : { begin_s: from, end_s: at_s, colour: stateColour("waiting"), thin: true }); };
  for (const { at_s, what } of story) {
    if (what === "started" && !running) { close(at_s); from = at_s; running = true; n++; }
    else if (running && !GOES_ON.test(what)) { close(at_s); from = at_s; running = false; }
  }
  if (running || job.finished_s === null) close(end_s);
  return parts;
}
