"""The examples and scripts that use trine itself load: `make run` is one of them."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.docs.pages import ROOT


def test_the_demonstration_of_make_run_loads_and_says_how_it_is_used() -> None:
    script = ROOT / "examples" / "run_workload.py"
    done = subprocess.run([sys.executable, str(script), "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--state" in done.stdout


def test_the_picture_of_the_policy_can_be_drawn_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bars change with the policies; that it is a drawing of all GPUs under both schedulers does not."""
    pictures = runpy.run_path(str(ROOT / "docs" / "pictures.py"))
    monkeypatch.setitem(pictures["main"].__globals__, "OUT", tmp_path / "trine.svg")
    monkeypatch.setitem(pictures["main"].__globals__, "WORLD", pictures["WORLD"] | {"world.jobs": 20})
    pictures["main"]()
    drawn = ElementTree.parse(tmp_path / "trine.svg").getroot()
    words = [text.text or "" for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
    for title in pictures["SCHEDULERS"]:
        assert any(word.startswith(f"{title}: JCT") for word in words)
    assert sum(word == "K80" for word in words) == 2
