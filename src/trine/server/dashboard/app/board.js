// The cluster and its jobs as the server last told: a snapshot and the changes since. Pages read it and listen to it.

export class Board extends EventTarget {
  constructor() {
    super();
    this.ready = false;
    this.jobs = new Map();
    this.rank = new Map();
    this.order = [];
    this.gpus = [];
    this.nodes = [];
    this.slowdowns = {};
    this.out = {};
    this.flags = {};
    this.link_loads = [];
    this.about = {};
    this.now_s = 0;
    this.begin_s = 0;
    this.heard_ms = 0;
  }

  /** Of a daemon, not of a recorded run: known before the first snapshot is here. */
  get live() {
    return (this.run ?? null) === null;
  }

  /** The time at the server, which goes on between events. */
  get time_s() {
    return this.live && this.heard_ms ? this.now_s + (performance.now() - this.heard_ms) / 1000 : this.now_s;
  }

  take(kind, value) {
    if (kind === "snapshot") this.snapshot(value);
    else this.change(value);
    this.heard_ms = performance.now();
    this.ready = true;
    this.dispatchEvent(new Event("change"));
  }

  snapshot(value) {
    this.columns = value.columns;
    this.jobs = new Map();
    this.addJobs(value.jobs);
    this.gpus = value.gpus;
    this.common(value);
    this.layoutChanged = true;
  }

  change(value) {
    this.layoutChanged = "nodes" in value;
    this.addJobs(value.jobs ?? []);
    for (const id of value.gone ?? []) this.jobs.delete(id);
    if (value.nodes) this.gpus.length = value.nodes.reduce((sum, node) => sum + node.gpus, 0);
    for (const [gpu, jobs] of value.gpus ?? []) this.gpus[gpu] = jobs;
    this.common(value);
  }

  common(value) {
    for (const key of ["now_s", "begin_s", "end_s", "about", "nodes", "slowdowns", "out", "flags", "link_loads"]) {
      if (key in value) this[key] = value[key];
    }
    const order = value.order ?? (value.order_moves ? moved(this.order, value.order_moves) : null);
    if (order) {
      this.order = order;
      this.rank = new Map(order.map((id, index) => [id, value.ranks ? value.ranks[index] : index + 1]));
    }
  }

  addJobs(rows) {
    for (const row of rows) {
      const job = {};
      this.columns.forEach((name, index) => { job[name] = row[index]; });
      this.jobs.set(job.id, job);
    }
  }

  /** What people call a GPU: node0:3. */
  gpuName(gpu) {
    let first = 0;
    for (const node of this.nodes) {
      if (gpu < first + node.gpus) return `${node.name}:${node.indices?.[gpu - first] ?? gpu - first}`;
      first += node.gpus;
    }
    return "";
  }

  /** Where a job runs: "node0:0-3, node1:0". */
  place(id) {
    const parts = [];
    let first = 0;
    for (const node of this.nodes) {
      const own = [];
      for (let index = 0; index < node.gpus; index++) if (this.gpus[first + index]?.includes(id)) own.push(node.indices?.[index] ?? index);
      if (own.length) parts.push(`${node.name}:${ranges(own)}`);
      first += node.gpus;
    }
    return parts.join(", ");
  }
}

/** The order without the jobs that left their place, and with those that came in at an index of the result. */
function moved(order, { out, in: put }) {
  const left = new Set(out), stayed = order.filter((id) => !left.has(id)), result = [];
  let next = 0;
  for (const [index, id] of put) {
    while (result.length < index) result.push(stayed[next++]);
    result.push(id);
  }
  while (next < stayed.length) result.push(stayed[next++]);
  return result;
}

/** [0,1,2,5] as "0-2,5". */
export function ranges(numbers) {
  const parts = [];
  for (let i = 0; i < numbers.length; i++) {
    const from = numbers[i];
    while (numbers[i + 1] === numbers[i] + 1) i++;
    parts.push(from === numbers[i] ? `${from}` : `${from}-${numbers[i]}`);
  }
  return parts.join(",");
}
