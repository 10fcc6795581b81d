"""One way in for ``--variability``: our JSON profile or a CSV table, whichever the file is."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from trine.core.cluster import Cluster
from trine.core.errors import InputError
from trine.inputs.text_file import read_text
from trine.inputs.variability import WHAT as CSV_WHAT
from trine.inputs.variability import load_variability
from trine.perf.variability import VariabilityTable
from trine.profile.variability import load_profile


def load_any(path: str | Path, cluster: Cluster, classes: Iterable[str] = ()) -> tuple[VariabilityTable, list[str]]:
    """The slowdowns in ``path`` for the GPUs of ``cluster``, and notes on what had to be assumed.

    ``classes`` are those of the jobs, if known: those without a profile are then noted.
    """
    if not read_text(path, f"a variability profile (JSON) or {CSV_WHAT}").lstrip().startswith("{"):
        return load_variability(path, cluster), []
    profile = load_profile(path)
    try:
        return profile.table(cluster, classes)
    except InputError as error:
        raise InputError(str(path), error.found, error.expected, error.field) from None
