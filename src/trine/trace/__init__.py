"""Job traces: one validated schema and importers for the public formats (``trine.trace.formats``).

``load`` reads a trace, ``inspect`` only counts, ``write_trace`` writes our own CSV. No simulator, no cluster in here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trine.trace.formats.trine import write_trace
    from trine.trace.importer import ImportSummary, Trace, inspect, load
    from trine.trace.options import ImportOptions

__all__ = ["ImportOptions", "ImportSummary", "Trace", "inspect", "load", "write_trace"]

_HOME = {
    "ImportOptions": "options",
    "ImportSummary": "importer",
    "Trace": "importer",
    "inspect": "importer",
    "load": "importer",
    "write_trace": "formats.trine",
}


def __getattr__(name: str) -> Any:
    # Names are imported at first use: `trine --help` must not pay for csv, gzip and the formats.
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
