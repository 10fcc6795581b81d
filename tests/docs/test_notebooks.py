"""The notebooks in ``examples/`` run from the first cell to the last, and show what is stored in them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT, blocks

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_shows_what_is_stored_in_it(path: Path) -> None:
    words = [sys.executable, "-W", "error", str(ROOT / "examples" / "run_notebook.py"), "--check", str(path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_small_and_every_cell_was_run(path: Path) -> None:
    assert path.stat().st_size < 100_000
    cells = json.loads(path.read_text())["cells"]
    counts = [cell["execution_count"] for cell in cells if cell["cell_type"] == "code"]
    assert counts == list(range(1, len(counts) + 1))
    assert len({cell["id"] for cell in cells}) == len(cells)


def test_the_sample_trace_is_what_its_script_writes(tmp_path: Path) -> None:
    script = ROOT / "examples" / "make_helios_sample.py"
    (tmp_path / script.name).write_text(script.read_text())
    subprocess.run([sys.executable, str(tmp_path / script.name)], check=True)
    assert (tmp_path / "helios_sample.csv").read_bytes() == (script.parent / "helios_sample.csv").read_bytes()


def test_the_python_of_the_page_runs_from_top_to_bottom(tmp_path: Path) -> None:
    sample = (ROOT / "examples" / "helios_sample.csv").read_text().splitlines(keepends=True)
    (tmp_path / "helios_sample.csv").write_text("".join(sample[:151]))
    cells = blocks(ROOT / "docs" / "notebook.md", "python")
    assert len(cells) == 5
    empty: dict[str, Any] = {"cell_type": "code", "outputs": [], "execution_count": None}
    made = [empty | {"source": cell} for cell in cells]
    path = tmp_path / "page.ipynb"
    path.write_text(json.dumps({"cells": made}))
    words = [sys.executable, "-W", "error", str(ROOT / "examples" / "run_notebook.py"), str(path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    shown = [cell["outputs"][-1]["data"]["text/plain"] for cell in json.loads(path.read_text())["cells"]]
    assert shown[3] == ["<comparison of 3 policies and placements, 3 runs>"]
