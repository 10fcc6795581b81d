"""Ways to draw 10,000 GPUs in a browser: canvas, elements, SVG, plotly. ``python -m benchmarks.map_drawing`` prints seconds
of the browser's main thread to draw all and to draw again after 500 changes, and the heap after both."""

from __future__ import annotations

import shutil
from typing import Any

CELLS, COLUMNS, CHANGES = 10_000, 125, 500
SETUP = f"""
const N = {CELLS}, COLUMNS = {COLUMNS}, colours = ["#0072b2", "#e69f00", "#009e73", "#cc79a7"];
const values = Array.from({{length: N}}, (_, i) => i % 4);
const change = () => {{ for (let i = 0; i < {CHANGES}; i++) values[(i * 19) % N] = (values[(i * 19) % N] + 1) % 4; }};
const flush = () => document.body.getBoundingClientRect();
const timed = (work) => {{ const begin = performance.now(); work(); flush(); return (performance.now() - begin) / 1000; }};
"""
WAYS = {
    "canvas": """
const c = document.body.appendChild(document.createElement("canvas")); c.width = 1250; c.height = 800;
const g = c.getContext("2d");
const draw = () => { values.forEach((v, i) => { g.fillStyle = colours[v]; g.fillRect((i % COLUMNS) * 10, Math.floor(i / COLUMNS) * 10, 9, 9); }); g.getImageData(0, 0, 1, 1); };
const first = timed(draw); change(); return [first, timed(draw)];""",
    "elements": """
document.body.style.cssText = "display:grid;grid-template-columns:repeat(125,9px);gap:1px";
let cells; const first = timed(() => { cells = values.map((v) => { const d = document.createElement("div"); d.style.cssText = "height:9px"; d.style.background = colours[v]; document.body.append(d); return d; }); });
change(); return [first, timed(() => values.forEach((v, i) => { cells[i].style.background = colours[v]; }))];""",
    "SVG": """
const NS = "http://www.w3.org/2000/svg", s = document.body.appendChild(document.createElementNS(NS, "svg")); s.setAttribute("width", 1250); s.setAttribute("height", 800);
let cells; const first = timed(() => { cells = values.map((v, i) => { const r = document.createElementNS(NS, "rect"); for (const [k, x] of [["x", (i % COLUMNS) * 10], ["y", Math.floor(i / COLUMNS) * 10], ["width", 9], ["height", 9], ["fill", colours[v]]]) r.setAttribute(k, x); s.append(r); return r; }); });
change(); return [first, timed(() => values.forEach((v, i) => cells[i].setAttribute("fill", colours[v])))];""",
    "plotly heatmap": """
const z = () => Array.from({length: N / COLUMNS}, (_, r) => values.slice(r * COLUMNS, (r + 1) * COLUMNS));
const d = document.body.appendChild(document.createElement("div"));
const begin = performance.now(); await Plotly.newPlot(d, [{type: "heatmap", z: z(), xgap: 1, ygap: 1}], {width: 1250, height: 800}); flush(); const first = (performance.now() - begin) / 1000;
change(); const again = performance.now(); await Plotly.react(d, [{type: "heatmap", z: z(), xgap: 1, ygap: 1}], {width: 1250, height: 800}); flush(); return [first, (performance.now() - again) / 1000];""",
}


def measured(browser: Any, name: str) -> tuple[float, float, float]:
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    if name.startswith("plotly"):
        from plotly.offline import get_plotlyjs

        page.add_script_tag(content=get_plotlyjs())
    first_s, again_s = page.evaluate(f"async () => {{ {SETUP} {WAYS[name]} }}")
    heap_mb = page.evaluate("performance.memory.usedJSHeapSize") / 1e6
    page.close()
    return first_s, again_s, heap_mb


def main() -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--enable-precise-memory-info"]
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
        print(f"{'':<16}{'draw (s)':>10}{'again (s)':>10}{'heap (MB)':>10}")
        for name in WAYS:
            print(f"{name:<16}" + "".join(f"{value:>10.3f}" for value in measured(browser, name)))
        browser.close()


if __name__ == "__main__":
    main()
