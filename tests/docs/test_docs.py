"""The documentation keeps up with the code: reference pages are fresh, links lead somewhere, commands parse."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from unittest.mock import Mock

import numpy as np
import pytest

from tests.contract import table
from tests.docs.inputs import make
from tests.docs.pages import PAGES, ROOT, blocks
from trine.policy.view import JobColumns, View


def _reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "docs/reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_of_the_contract_is_fresh() -> None:
    text = table.PAGE.read_text()
    assert table.page(text) == text, "docs/engines.md is out of date: run `make docs`"


def test_everything_that_a_policy_may_read_of_a_view_is_on_its_page() -> None:
    page = _reference().pages()["view.md"]
    view = View(0.0, np.arange(0), Mock(spec=JobColumns), [], [])
    for name in {*dir(View), *vars(view)}:
        assert name.startswith("_") or re.search(rf"^\| `view\.{name}(\(.*\))?` \| .+ \| \S.+ \|$", page, re.M), name


def test_reference_pages_are_fresh() -> None:
    for name, content in _reference().pages().items():
        assert (ROOT / "docs/reference" / name).read_text() == content, f"{name} is out of date: run `make docs`"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_into_a_page_lead_to_a_heading(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]*)\)", page.read_text()):
        headings = re.findall(r"^#+ (.*)$", ((page.parent / target) if target else page).read_text(), re.MULTILINE)
        known = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
        assert anchor in known, f"{page.name} links to {target}#{anchor}"


DESIGN = sorted((ROOT / "docs/design").glob("*.md"))
NOT_OURS = {"trine/sdk.py"}
"""Named in the design records, and no file of this tree: the SDK's own distribution has it."""


@pytest.mark.parametrize("page", [ROOT / "CONTRIBUTING.md", *DESIGN], ids=lambda p: p.name)
def test_modules_that_the_map_and_the_records_name_exist(page: Path) -> None:
    """A contributor who follows the map finds the file; a module that moves takes the pages that name it along."""
    known = [path.as_posix() for part in ("src", "tests", "docs", "examples") for path in (ROOT / part).rglob("*.py")]
    named = set(re.findall(r"`([\w/]+\.py)`", page.read_text())) - NOT_OURS
    assert [name for name in sorted(named) if not any(path.endswith(f"/{name}") for path in known)] == []


@pytest.mark.parametrize(
    ("page", "option"),
    [("README.md", "--policy"), ("docs/tutorial.md", "--placement"), ("docs/placements.md", "--placement")],
)
def test_the_examples_of_a_policy_and_a_placement_run(page: str, option: str, tmp_path: Path) -> None:
    code = re.search(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert code is not None
    (tmp_path / "mine.py").write_text(code.group(1))
    command = [sys.executable, "-m", "trine", "sim", "run", "--workload", "pai", "--set", "workload.jobs=30"]
    command += ["--cluster", "2x4", option, str(tmp_path / "mine.py"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert '"finished": 30' in done.stdout


def test_the_loop_of_the_sdk_page_trains_and_saves(tmp_path: Path) -> None:
    code = re.search(r"```python\n(.*?)```", (ROOT / "docs/sdk.md").read_text(), re.DOTALL)
    assert code is not None
    given = "loader = range(100)\ndef train(state, batch): state['weight'] += 1\n"
    (tmp_path / "train.py").write_text(given + code.group(1) + "\nprint(state['weight'])\n")
    command = [sys.executable, "train.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "10000.0\n"
    assert (tmp_path / "checkpoints/step-000000010000.json").exists()


def test_the_import_of_the_page_on_traces_reads_and_writes(tmp_path: Path) -> None:
    [code] = blocks(ROOT / "docs/traces.md", "python")
    make(tmp_path, ("openb_pod_list_default.csv.gz",))
    (tmp_path / "openb_pod_list_default.csv.gz").rename(tmp_path / "workload.csv.gz")
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "6 jobs from 9 rows" in done.stdout
    assert (tmp_path / "workload-trine.csv").exists()


def test_the_picture_of_the_report_is_wide_enough_for_its_table() -> None:
    """At less than 1,240 the table of a comparison scrolls, and a picture cuts its last column off."""
    header = (ROOT / "docs" / "images" / "report.png").read_bytes()[:24]
    assert int.from_bytes(header[16:20], "big") >= 1240
