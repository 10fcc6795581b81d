// Puts the dashboard together: login, the board and its stream, the pages by their address, the top of every page.

import { Board } from "./board.js";
import { el, fill, setText } from "./elements.js";
import { visible } from "./format.js";
import { loginPage } from "./login.js";
import { ClusterPage } from "./pages/cluster.js";
import { HardwarePage } from "./pages/hardware.js";
import { HistoryPage } from "./pages/history.js";
import { JobPage } from "./pages/job.js";
import { QueuePage } from "./pages/queue.js";
import { UsersPage } from "./pages/users.js";
import { WhatIfPage } from "./pages/whatif.js";
import { RecordedRuns } from "./recorded.js";
import { getJson, logout, whoAmI } from "./session.js";
import { Stream } from "./stream.js";

const PAGES = {
  cluster: ["Cluster", ClusterPage], queue: ["Queue", QueuePage], users: ["Users and queues", UsersPage],
  hardware: ["Hardware", HardwarePage], history: ["History", HistoryPage], whatif: ["What if", WhatIfPage], job: ["", JobPage],
};

class Dashboard {
  constructor(session) {
    this.session = session;
    this.boards = (session.runs.length ? session.runs : [""]).map((title, run) => newBoard(title, session.runs.length ? run : null));
    this.pages = [];
    this.condition = el("span", { class: "condition", role: "status" }, "connecting");
    this.main = el("main", { id: "content", tabindex: -1 });
    this.problems = el("div", {});
    this.panes = el("div", { class: "panes" });
    this.panes.style.setProperty("--panes", this.boards.length);
    this.links = Object.entries(PAGES).filter(([key, [text]]) => text && this.offers(key)).map(([key, [text]]) => el("a", { href: `#/${key}` }, text));
    this.navigation = el("nav", { "aria-label": "Pages" }, this.links);
    fill(this.main, this.problems, this.panes);
  }

  start() {
    fill(document.body, el("a", { class: "skip", href: "#content", onclick: (event) => { event.preventDefault(); this.main.focus(); } }, "Skip to the content"), this.top(), this.main);
    for (const board of this.boards) board.addEventListener("change", () => this.soon());
    window.addEventListener("hashchange", () => this.show());
    document.addEventListener("keydown", (event) => this.key(event));
    if (this.session.runs.length) this.record();
    else this.stream = new Stream("/v1/board/events", (kind, value) => this.boards[0].take(kind, value), (text) => this.say(text));
    this.show();
    setInterval(() => this.soon(), 1000); // times that pass
  }

  record() {
    const runs = new RecordedRuns(this.boards, (text) => this.say(text));
    document.body.append(runs.element);
    runs.start();
  }

  top() {
    const leave = () => { this.stream?.close(); logout().catch(() => {}).finally(() => location.reload()); }; // also if the daemon is away
    return el("header", { class: "top" }, el("strong", {}, "trine"), this.navigation, this.condition,
      el("span", { class: "muted user", title: this.session.user }, this.session.user + (this.session.admin ? " (administrator)" : "")),
      el("button", { type: "button", onclick: nextTheme, title: "Light, dark, or as the system" }, "Theme"),
      el("button", { type: "button", onclick: leave }, "Log out"));
  }

  say(text) {
    if (text === "logged out") { location.reload(); return; }
    setText(this.condition, { live: "live", lost: "connection lost, trying again", recorded: "recorded" }[text] ?? text);
    this.condition.classList.toggle("lost", text === "lost");
  }

  /** The page that the address names, once per board. */
  show() {
    const [asked, ...rest] = location.hash.replace(/^#\/?/, "").split("/");
    const name = Object.hasOwn(PAGES, asked) ? asked : "cluster", [title, Page] = PAGES[name];
    this.pages.forEach((page) => page.close?.());
    for (const link of this.links) {
      if (link.hash === `#/${name}`) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    const argument = decoded(rest.join("/"));
    document.title = visible(`${title || `Job ${argument}`} · trine`);
    const roots = this.boards.map(() => el("div", {})), focused = this.panes.contains(document.activeElement);
    fill(this.panes, this.boards.map((board, i) => el("div", { class: "pane" }, board.title ? el("p", { class: "run" }, board.title) : null, roots[i])));
    this.pages = this.boards.map((board, i) => new Page(roots[i], board, { argument, session: this.session }));
    if (focused) this.main.focus(); // what had it is gone
    this.update();
    scrollTo(0, 0);
  }

  offers(key) {
    return key !== "whatif" || !this.session.runs.length;
  }

  soon() {
    this.asked ??= requestAnimationFrame(() => { this.asked = null; this.update(); });
  }

  update() {
    const problems = this.boards.flatMap((board) => board.about.problems ?? []);
    const told = problems.join("\n");
    if (told !== this.told) fill(this.problems, problems.map((text) => el("p", { class: "notice" }, text)));
    this.told = told;
    this.pages.forEach((page, i) => { if (this.boards[i].ready) page.update(); });
    document.body.dataset.version = this.boards.map((board) => board.now_s).join(" ");
  }

  /** A digit goes to a page; / to the filter. */
  key(event) {
    if (event.ctrlKey || event.altKey || event.metaKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) || document.querySelector("dialog[open]")) return;
    const link = this.navigation.children[Number(event.key) - 1];
    if (link) link.click();
    const filter = document.querySelector("input[type=search]");
    if (event.key === "/" && filter) { event.preventDefault(); filter.focus(); }
  }
}

function newBoard(title, run) {
  const board = new Board();
  board.title = title;
  board.run = run;
  board.path = (path) => (run === null ? `/v1/${path}` : `/v1/runs/${run}/${path}`);
  board.ask = (path) => getJson(board.path(path));
  return board;
}

/** A part of the address as it was before it was encoded; as it is if nothing of ours encoded it. */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function nextTheme() {
  const order = ["", "light", "dark"];
  const next = order[(order.indexOf(document.documentElement.dataset.theme ?? "") + 1) % order.length];
  localStorage.setItem("trine-theme", next);
  useTheme();
  dispatchEvent(new Event("resize"));
}

function useTheme() {
  const theme = localStorage.getItem("trine-theme");
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

async function begin() {
  useTheme();
  const session = await loginPage(whoAmI);
  new Dashboard({ runs: [], ...session }).start();
}

begin();
