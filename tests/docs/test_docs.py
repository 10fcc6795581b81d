"""The documentation keeps up with the code: reference pages are fresh, links lead somewhere, commands parse."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.pages import PAGES, ROOT


def _reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "docs/reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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


@pytest.mark.parametrize(("page", "option"), [("README.md", "--policy"), ("docs/tutorial.md", "--placement")])
def test_the_examples_of_a_policy_and_a_placement_run(page: str, option: str, tmp_path: Path) -> None:
    code = re.search(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert code is not None
    (tmp_path / "mine.py").write_text(code.group(1))
    command = [sys.executable, "-m", "trine", "sim", "run", "--workload", "pai", "--set", "workload.jobs=30"]
    command += ["--cluster", "2x4", option, str(tmp_path / "mine.py"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert '"finished": 30' in done.stdout
