// Draws the figures of the page: resolves colour names for the theme, unpacks maps, keeps selectors and clocks together.
(() => {
  "use strict";
  const LIGHT = {
    paper: "#ffffff", ink: "#1b1f24", muted: "#5b6570", grid: "#e6e9ed", hover: "#ffffff",
    c: ["#0072b2", "#d55e00", "#009e73", "#c9629f", "#1b1f24", "#dfae00", "#aab1ba"],
    m: ["#77aadd", "#ee8866", "#44bb99", "#eedd88", "#ffaabb", "#6a4c93", "#bbcc33", "#8a6d3b"], background: "#d3d6da",
    s: ["#f3f5f7", "#c5d6e6", "#85aed0", "#3f7fb3", "#084a7d"],
    h: ["#eceff2", "#f6c7a0", "#ee8b4c", "#c8501a", "#7a2400"],
  };
  const DARK = {
    paper: "#15181d", ink: "#e6e9ed", muted: "#9aa4af", grid: "#2b3037", hover: "#262b32",
    c: ["#4aa3dd", "#f0803c", "#12a67c", "#e79bc8", "#f2f4f7", "#d9ae1a", "#7d8794"],
    m: ["#5b8fc4", "#cf6d4c", "#35997d", "#cbb75f", "#d9879a", "#c9b3f5", "#9cab2b", "#6f5128"], background: "#474d56",
    s: ["#1f242b", "#234765", "#2f709f", "#5a9fcf", "#b5dcf5"],
    h: ["#2a3038", "#6b3f22", "#b05a24", "#ea8a45", "#ffd3ad"],
  };
  const LONG_NAME = 18;
  const darkQuery = window.matchMedia("(prefers-color-scheme: dark)");
  const theme = () => (darkQuery.matches ? DARK : LIGHT);
  const json = (id) => JSON.parse(document.getElementById(id).textContent);

  const colour = (name) => {
    const t = theme(), soft = name.endsWith("-soft"), key = soft ? name.slice(1, -5) : name.slice(1);
    const found = /^[cmsh]\d$/.test(key) ? t[key[0]][+key[1]] : t[key];
    return soft ? found + "2e" : found;
  };
  // Only values below a key that names a colour are touched: a job may be called "@ink".
  const paint = (value, inColour) => {
    if (typeof value === "string") return inColour && value[0] === "@" ? colour(value) : value;
    if (Array.isArray(value)) return inColour ? value.map((v) => paint(v, true)) : value.map((v) =>
      v && typeof v === "object" && !Array.isArray(v) ? paint(v, false) : v);
    if (!value || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, paint(v, /color/.test(k))]));
  };

  const span = (s) => {
    const [n, u] = s < 90 ? [s, "s"] : s < 3600 ? [s / 60, "min"] : s < 345600 ? [s / 3600, "h"] : [s / 86400, "d"];
    return `${+n.toPrecision(n >= 100 ? 3 : 2)} ${u}`;
  };
  const jobMap = (map) => {
    const { x, rows, table, zero_s, gpus } = map;
    const from = (s) => span(s - zero_s);
    const texts = table.job.map((j, i) =>
      `<b>${table.jobs[j]}</b>${table.background[i] ? " (background)" : ""}<br>${table.gpus[i]} GPU${table.gpus[i] > 1 ? "s" : ""}` +
      `, tier ${table.tier[i]}${table.slowdown[i] === null ? "" : `, slowdown ${table.slowdown[i]}×`}` +
      `<br>from ${from(table.start_s[i])} for ${span(table.end_s[i] - table.start_s[i])}`);
    const kinds = LIGHT.m.length;
    const z = [], text = [];
    rows.forEach((row, gpu) => {
      const zs = [], ts = [], idle = `${gpus[gpu]}: idle`;
      const busy = new Map();
      for (let k = 0; k < row.length; k += 2) {
        const seg = row[k + 1];
        if (seg >= 0 && !busy.has(seg)) busy.set(seg, `${texts[seg]}<br>${gpus[gpu]}`);
        const t = seg < 0 ? idle : busy.get(seg);
        const v = seg < 0 ? null : table.background[seg] ? kinds : table.colour[table.job[seg]];
        for (let n = row[k]; n > 0; n--) { zs.push(v); ts.push(t); }
      }
      z.push(zs); text.push(ts);
    });
    const names = [...LIGHT.m.map((_, i) => `@m${i}`), "@background"];
    const scale = names.flatMap((c, i) => [[i / names.length, c], [(i + 1) / names.length, c]]);
    return { type: "heatmap", x, y: rows.map((_, i) => i), z, text, hoverinfo: "text", hoverongaps: true, showscale: false,
      zmin: -0.5, zmax: kinds + 0.5, colorscale: scale, ygap: rows.length <= 96 ? 1 : 0 };
  };

  const axisLook = { gridcolor: "@grid", linecolor: "@grid", zerolinecolor: "@grid", tickcolor: "@grid", automargin: true };
  const titled = (a) => ({ ...axisLook, ...a, title: { standoff: 10, ...a.title, font: { size: 12.5, color: "@muted" } } });
  // Marks of a logarithmic axis that would touch the one before them are left out.
  const thinned = (a, room) => {
    if (a.type !== "log" || !a.tickvals || !a.range) return a;
    const perDecade = room / (a.range[1] - a.range[0]), kept = [];
    a.tickvals.forEach((v, i) => {
      const text = a.ticktext ? a.ticktext[i] : String(v), at = (Math.log10(v) - a.range[0]) * perDecade, half = 3.6 * text.length;
      if (at >= 0 && at <= room && (!kept.length || at - half > kept[kept.length - 1].end + 10)) kept.push({ v, text, end: at + half });
    });
    return { ...a, tickvals: kept.map((k) => k.v), ticktext: kept.map((k) => k.text) };
  };
  // The title of an axis that is wider than the axis goes on below, from its last bracket on.
  const wrapped = (a, room) => {
    const text = a.title && a.title.text;
    return text && text.length * 7 > room ? { ...a, title: { ...a.title, text: text.replace(/ \((?!.* \()/, "<br>(") } } : a;
  };
  // Long names of rows would leave no room for the bars on a phone: they go on below too, or lose their middle.
  const folded = (name) => {
    if (name.length <= LONG_NAME) return name;
    const bracket = name.lastIndexOf(" (");
    if (bracket > 0) return `${name.slice(0, bracket)}<br>${name.slice(bracket + 1)}`;
    const slash = name.indexOf("/");  // policy/placement
    if (slash > 0) return `${name.slice(0, slash + 1)}<br>${name.slice(slash + 1)}`;
    return name.includes("&") ? name : `${name.slice(0, LONG_NAME / 2)}…${name.slice(-LONG_NAME / 2)}`;
  };
  const rowsFolded = (a, data, width) => {
    const names = a && a.type === "category" && width < 420 ? [...new Set(data.flatMap((d) => d.y || []))] : [];
    return names.some((name) => name.length > LONG_NAME) ? names : [];
  };
  const narrowed = (a, data, width) => {
    const names = rowsFolded(a, data, width);
    if (!names.length) return a;
    return { ...a, tickvals: names, ticktext: names.map(folded), tickfont: { size: 10.5 } };
  };
  // What is left of the width beside the names of rows, or the numbers of a vertical axis.
  const roomBeside = (layout, data, width) => {
    const rows = layout.yaxis && layout.yaxis.type === "category" ? data.flatMap((d) => d.y || []) : [];
    const longest = rows.reduce((most, name) => Math.max(most, name.length), 0);
    return width - 80 - (longest ? Math.min(longest, width < 420 ? LONG_NAME : longest) * 6.5 - 20 : 0);
  };
  // On a phone the scale of a map stands above it: beside it, it would take a third of the width.
  const SCALE_PX = 56;
  const narrowScale = (d, width) => (width >= 640 || !d.colorbar ? d : { ...d, colorbar: { ...d.colorbar, orientation: "h", len: 1,
    x: 0.5, xanchor: "center", y: 1, yanchor: "bottom", ypad: 4, thickness: 9, title: { ...d.colorbar.title, side: "top", font: { size: 12.5 } } } });
  const FOLDED_PX = 9;
  const heightened = (layout, data, width) => (width >= 640 || !data.some((d) => d.colorbar) ?
    { ...layout, height: layout.height + FOLDED_PX * rowsFolded(layout.yaxis, data, width).length } :
    { ...layout, height: layout.height + SCALE_PX, margin: { ...layout.margin, t: layout.margin.t + SCALE_PX - 20 } });
  const dress = (layout, data, width) => {
    const room = roomBeside(layout, data, width);
    // Names over the strips of a Gantt chart would touch each other on a phone; its caption says what they are.
    const strips = width < 640 ? { showticklabels: false } : {};
    const look = (k, v) => (/^xaxis[23]$/.test(k) ? titled({ ...v, ...strips }) : k.startsWith("xaxis") ? titled(wrapped(thinned(v, room), room)) : /^yaxis/.test(k) ? titled(narrowed(v, data, width)) : v);
    const own = Object.fromEntries(Object.entries(heightened(layout, data, width)).map(([k, v]) => [k, look(k, v)]));
    return paint({
      font: { family: "system-ui, -apple-system, 'Segoe UI', Roboto, Arial, sans-serif", size: 12.5, color: "@ink" },
      paper_bgcolor: "@paper", plot_bgcolor: "@paper", margin: { l: 56, r: 12, t: 26, b: 52 },
      hoverlabel: { bgcolor: "@hover", bordercolor: "@grid", font: { color: "@ink", size: 12.5 }, align: "left" },
      ...own,
    }, false);
  };
  // plotly.js 4 offers to upload the chart unless told not to.
  const config = { showSendToCloud: false, plotlyServerURL: "", responsive: true, displaylogo: false, displayModeBar: window.innerWidth < 640 ? false : "hover",
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]] };

  const specs = new Map();
  const spec = (div) => {
    if (!specs.has(div.id)) {
      const found = json(`${div.id}-data`);
      if (found.jobmap) { found.data.unshift(jobMap(found.jobmap)); delete found.jobmap; }
      if (found.rows) found.data[0].text = found.rows.map((name) => new Array(found.data[0].z[0].length).fill(name));
      specs.set(div.id, found);
    }
    return specs.get(div.id);
  };
  const drawn = new Set();
  let linking = false;
  const link = (div) => div.on("plotly_relayout", (change) => {
    const clock = spec(div).layout.meta && spec(div).layout.meta.clock;
    const touched = Object.keys(change).some((k) => k.startsWith("xaxis."));
    if (linking || !clock || !touched) return;
    linking = true;
    const range = div.layout.xaxis.range.slice();
    const others = [...drawn].filter((d) => d !== div && d.offsetParent && (spec(d).layout.meta || {}).clock === clock);
    Promise.all(others.map((d) => Plotly.relayout(d, { "xaxis.range": range }))).finally(() => { linking = false; });
  });
  const draw = (div) => {
    const { data, layout } = spec(div);
    const first = !drawn.has(div);
    drawn.add(div);
    Plotly.react(div, data.map((d) => paint(narrowScale(d, div.clientWidth), false)), dress(layout, data, div.clientWidth), config).then(() => first && link(div));
  };
  const drawVisible = () => document.querySelectorAll(".plot").forEach((d) => d.offsetParent && !drawn.has(d) && draw(d));

  const choose = (value) => {
    document.querySelectorAll("select[data-choice]").forEach((s) => { s.value = value; });
    document.querySelectorAll("[data-view]").forEach((v) => { v.hidden = v.dataset.view !== value; });
    drawVisible();
  };
  document.querySelectorAll("select[data-choice]").forEach((s) => s.addEventListener("change", () => choose(s.value)));
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth === width) return;
    width = window.innerWidth;
    drawn.forEach((d) => { if (d.offsetParent) draw(d); });
  });
  darkQuery.addEventListener("change", () => { const again = [...drawn]; drawn.clear(); again.forEach((d) => { drawn.add(d); draw(d); }); });
  drawVisible();
})();
