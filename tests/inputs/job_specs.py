"""Job specifications for tests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from trine.inputs.job_spec import JobSpec, parse_jobs


def from_command(command: Sequence[str], gpus: int = 1, **keys: Any) -> JobSpec:
    """The job that runs ``command`` (arguments, no shell); ``keys`` as in a job file, ``None`` counts as absent."""
    given = {"run": list(command), "gpus": gpus, **{key: value for key, value in keys.items() if value is not None}}
    return parse_jobs(json.dumps(given), "command line")[0]
