"""A fake daemon, and an environment that points at none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.fake_daemon import FakeDaemon, serving


@pytest.fixture(autouse=True)
def _nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("TRINE_API", "TRINE_TOKEN", "TRINE_TOKEN_FILE", "TRINE_STATE", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def daemon(state: Path) -> Iterator[FakeDaemon]:
    """Serves, and is announced in ``state``."""
    fake = FakeDaemon()
    with serving(fake, state):
        yield fake
