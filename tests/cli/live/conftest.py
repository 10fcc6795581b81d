"""The fixtures of the client: the verbs talk to the same fake daemon."""

from __future__ import annotations

from tests.client.conftest import _nowhere, daemon, state

__all__ = ["_nowhere", "daemon", "state"]
