"""The examples that use trine itself load: `make run` is one of them."""

from __future__ import annotations

import subprocess
import sys

from tests.docs.pages import ROOT


def test_the_demonstration_of_make_run_loads_and_says_how_it_is_used() -> None:
    script = ROOT / "examples" / "run_workload.py"
    done = subprocess.run([sys.executable, str(script), "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--state" in done.stdout
