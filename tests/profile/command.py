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
from typer.testing import CliRunner

from trine.cli import profile
from trine.core.errors import InputError

HERE = Path(__file__).parent
_CLEARED = ("CUDA_VISIBLE_DEVICES", "TRINE_PROGRESS")


def trine_profile(*args: str | Path, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name not in _CLEARED}
    return subprocess.run(
        [sys.executable, "-m", "trine", "profile", *map(str, args)],
        env={**kept, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def refused(*args: str | Path) -> str:
    """The sentence with which ``trine profile`` refuses ``args``, run in this process."""
    with pytest.MonkeyPatch.context() as patch:
        for name in _CLEARED:
            patch.delenv(name, raising=False)
        result = CliRunner().invoke(profile.app, [str(arg) for arg in args])
    if isinstance(result.exception, InputError):
        return str(result.exception)
    assert result.exit_code == 2, result.output
    return result.stderr


def found_devices(environment: Mapping[str, str], wanted: str = "") -> dict[str, Any]:
    """What ``find_devices`` finds in a process of its own: its devices and its notes."""
    code = f"""
import dataclasses, json
from trine.profile.devices import find_devices
print(json.dumps(dataclasses.asdict(find_devices("n1", {wanted!r}))))
"""
    kept = {name: value for name, value in os.environ.items() if name not in _CLEARED}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**kept, **environment}, capture_output=True, text=True, check=False
    )
    return json_of(done)


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
