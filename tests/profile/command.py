"""Runs ``trine profile`` in a process of its own, with stand-ins for the driver and PyTorch where a test wants them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
# Mounts the sub-command itself, so that these tests are about it alone.
_START = "from trine.cli import main, profile; main.app.add_typer(profile.app, name='profile'); main.main()"
_CLEARED = ("CUDA_VISIBLE_DEVICES", "TRINE_PROGRESS")


def trine_profile(*args: str | Path, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name not in _CLEARED}
    return subprocess.run(
        [sys.executable, "-c", _START, "profile", *map(str, args)],
        env={**kept, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def json_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def fake_nvml(folder: Path, **values: str) -> dict[str, str]:
    """The environment of a machine whose driver answers ``values``, as in ``names="A,B"``."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler to build the stand-in for the driver library with")
    library = folder / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, HERE / "fake_nvml.c"], check=True)
    return {"LD_LIBRARY_PATH": str(folder)} | {f"FAKE_NVML_{key.upper()}": value for key, value in values.items()}


def fake_torch(folder: Path, **values: str) -> dict[str, str]:
    """The environment of a machine with PyTorch and CUDA devices, as in ``speeds="1,1.2"``."""
    shutil.copy(HERE / "fake_torch.py", folder / "torch.py")
    return {"PYTHONPATH": str(folder)} | {f"FAKE_TORCH_{key.upper()}": value for key, value in values.items()}
