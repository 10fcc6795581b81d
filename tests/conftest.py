"""Fixtures for the whole suite: where the public data lies, if it lies anywhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SHARED = Path(os.environ.get("TRINE_SHARED", Path(__file__).parents[2] / "shared"))


def _existing(path: Path) -> Path:
    if not path.is_dir():
        pytest.skip(f"public data not found at {path} (set TRINE_SHARED to the folder that holds data/ and reference/)")
    return path


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Public traces and hardware measurements."""
    return _existing(SHARED / "data")


@pytest.fixture(scope="session")
def reference() -> Path:
    """Per-job results of the published systems' own code."""
    return _existing(SHARED / "reference")
