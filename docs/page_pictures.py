"""Makes the pictures of pages in docs/images: runs the simulations they show and photographs the pages in a headless Chromium. Run by
``make pictures``, which needs the command ``chromium``; nothing is fetched, and the pictures of plots come out alike up to
the fonts of the machine. ``shares-to-rounds.svg`` is drawn here, from a simulation, without a browser."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from trine.core.errors import TrineError
from trine.core.result import RunResult, Segment
from trine.report.compare import Comparison
from trine.report.compare_page import compare_page
from trine.report.run_page import run_page
from trine.sim.scenario import Scenario, Sweep, run, run_all

IMAGES = Path(__file__).parent / "images"
ROOT = Path(__file__).parent.parent
MIXED = ROOT / "examples" / "clusters" / "type-chip-place.yaml"
SHARES = ROOT / "examples" / "shares"
CHROMIUM = (
    *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--no-first-run", "--hide-scrollbars"),
    "--virtual-time-budget=15000",
)
# The table of a comparison needs 1,240, or its last column is cut.
DESKTOP, PHONE = 1280, 390
# A headless window is at least 500 wide: a phone is a frame inside one.
FRAME = "<body style='margin:0'><iframe src='{page}' style='border:0;width:{width}px;height:{height}px'></iframe>"
MEASURE = "<script>addEventListener('load', () => {document.body.dataset.height = document.body.scrollHeight})</script>"


def main() -> None:
    """Make all of them."""
    if shutil.which(CHROMIUM[0]) is None:
        raise TrineError("docs/page_pictures.py needs chromium (apt-get install chromium)")
    mixed, compared = mixed_run(), comparison()
    photograph(compare_page(compared), "report.png", DESKTOP, keep=("Results", "pair", "Where job time went"))
    photograph(run_page(mixed), "gantt.png", DESKTOP, keep=("Utilization by type", "Gantt chart"))
    photograph(run_page(mixed), "phone.png", PHONE, keep=("of job time is", "Gantt chart"), dark=True)
    (IMAGES / "shares-to-rounds.svg").write_text(rounds_svg(shares_run()), encoding="utf-8")


def mixed_run() -> RunResult:
    """Two GPU types, three racks and slow chips, so that the page has all there is to show of them."""
    jobs = {"workload.jobs": 400, "workload.load": 0.9, "workload.max_gpus": 16, "workload.models": "draw"}
    costs = {"locality_penalty": 1.4, "restore_s": 60}
    return run(Scenario(str(MIXED), "las", "packed-sticky", workload="helios", values=jobs | costs))


def comparison() -> Comparison:
    """The quickstart, so that the picture has the figures of ``make sim``."""
    jobs = {"workload.jobs": 1500, "workload.load": 1.0, "workload.arrivals": "diurnal", "workload.max_gpus": 32}
    values = jobs | {"locality_penalty": 1.4, "restore_s": 30}
    base = Scenario("16x4", workload="helios", values=values)
    policies = ("fifo", "fifo-backfill", "las", "tiresias", "srtf")
    return Comparison.of(run_all(Sweep(base, policies, ("packed-sticky",), range(5))))


def shares_run() -> RunResult:
    """The worked example of docs/policies.md."""
    files = {"trace": str(SHARES / "trace.csv"), "throughputs": str(SHARES / "throughputs.csv")}
    return run(Scenario("v100=1x1,k80=1x1", "max-min-fairness", values={"round_s": 360.0}, **files))


# -- photographs ------------------------------------------------------------------------------------------------------


def photograph(page: str, name: str, width: int, keep: tuple[str, ...], dark: bool = False) -> None:
    """The head of the page and the sections whose titles hold one of ``keep``, whole, at this width."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.html"
        path.write_text(parts_of(page, keep).replace("</body>", f"{MEASURE}</body>"), encoding="utf-8")
        height = _height(path, folder, width)
        shown = path
        if width < DESKTOP:
            shown = Path(folder) / "frame.html"
            shown.write_text(FRAME.format(page=path.as_uri(), width=width, height=height), encoding="utf-8")
        theme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
        picture = f"--screenshot={IMAGES / name}"
        _chromium(folder, theme, f"--window-size={width},{height}", picture, shown.as_uri())


def parts_of(page: str, keep: tuple[str, ...]) -> str:
    """The page with only the chosen sections; ``pair`` stands for the first two that stand side by side."""
    main = page.index("<main>") + len("<main>")
    end = page.index("</main>")
    parts = re.findall(r'(<div class="pair">.*?</section></div>|<section>.*?</section>)', page[main:end], re.S)
    chosen = []
    for part in parts:
        title = "pair" if part.startswith("<div") else re.sub("<.*?>", "", part[: part.index("</h2>")])
        if any(word in title for word in keep) and not (title == "pair" and any(c.startswith("<div") for c in chosen)):
            chosen.append(_first_two(part) if title == "pair" else part)
    return page[:main] + "".join(chosen) + page[end:]


def _first_two(pair: str) -> str:
    sections = re.findall(r"<section>.*?</section>", pair, re.S)
    return f'<div class="pair">{"".join(sections[:2])}</div>'


def _height(path: Path, folder: str, width: int) -> int:
    """The height at which nothing of the page is cut off, in pixels."""
    target = path
    if width < DESKTOP:  # measured at the width of the smallest window: a little more than is needed
        width = 500
    dom = _chromium(folder, f"--window-size={width},800", "--dump-dom", target.as_uri())
    found = re.search(r'data-height="(\d+)"', dom)
    if found is None:
        raise TrineError("the page was not drawn")
    return int(found.group(1)) + (160 if width == 500 else 0)


def _chromium(folder: str, *options: str) -> str:
    command = [*CHROMIUM, f"--user-data-dir={folder}/profile", *options]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


# -- shares and rounds ------------------------------------------------------------------------------------------------

ROUNDS, ROUND_PX, ROW_PX, LEFT = 22, 30, 44, 56
FILLS = {"vision": "#0072b2", "language": "#d55e00", "speech": "#009e73"}


def rounds_svg(result: RunResult) -> str:
    """Which job has which GPU in the first rounds, with the seconds that each got of each type."""
    round_s = float(result.settings["settings"]["run"]["round_s"])
    types = result.cluster.types
    boxes = [_box(s, round_s) for s in result.segments if s.start_s < ROUNDS * round_s]
    rows = [f'<text x="4" y="{30 + i * ROW_PX + 24}">{gpu_type}</text>' for i, gpu_type in enumerate(types)]
    marks = [_mark(k, len(types)) for k in range(0, ROUNDS + 1, 2)]
    width, height = LEFT + ROUNDS * ROUND_PX + 12, 30 + len(types) * ROW_PX + 34
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="system-ui, sans-serif" font-size="13">\n<rect width="100%" height="100%" fill="#ffffff"/>\n'
        + "\n".join(
            [f'<text x="{LEFT}" y="18">Rounds of {round_s:g} s, max-min-fairness</text>', *rows, *boxes, *marks]
        )
        + "\n</svg>\n"
    )


def _box(segment: Segment, round_s: float) -> str:
    start, end = segment.start_s / round_s, min(ROUNDS, segment.end_s / round_s)
    x, wide, y = LEFT + start * ROUND_PX, (end - start) * ROUND_PX, 30 + segment.gpus[0] * ROW_PX
    box = f'<rect x="{x:g}" y="{y}" width="{wide - 1:g}" height="{ROW_PX - 6}" fill="{FILLS[segment.job_id]}"/>'
    label = (
        f'<text x="{x + 5:g}" y="{y + 24}" fill="#ffffff">{segment.job_id if wide >= 58 else segment.job_id[0]}</text>'
    )
    return box + label


def _mark(number: int, rows: int) -> str:
    x, y = LEFT + number * ROUND_PX, 30 + rows * ROW_PX
    return f'<text x="{x}" y="{y + 16}" text-anchor="middle" fill="#5b6570">{number}</text>'


if __name__ == "__main__":
    try:
        main()
    except TrineError as error:
        sys.exit(str(error))
