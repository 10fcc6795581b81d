"""trine: a GPU-cluster scheduler and simulator for machine-learning jobs.

GPUs differ by type, by individual chip and by place in the network; trine schedules for all three, in a
simulator and on real clusters, with the same engine. ``simulate``, ``compare``, ``load_trace`` and ``Client`` are its
Python API (docs/notebook.md); see ``CONTRIBUTING.md`` for the map of the packages.
"""

TYPE_CHECKING = False  # typing takes longer to load than all of this, and every supervisor of a job loads it
if TYPE_CHECKING:
    from typing import Any

    from trine.client.client import Client
    from trine.core.errors import TrineError
    from trine.core.params import param
    from trine.experiment.results import Comparison, Simulation
    from trine.experiment.run import compare, load_trace, simulate
    from trine.placement.base import Placement
    from trine.policy.base import KeyPolicy, Policy
    from trine.policy.shares.base import SharePolicy
    from trine.policy.view import View
    from trine.trace.importer import Trace

__version__ = "0.1.0"

_HOMES = {
    "simulate": "experiment.run",
    "compare": "experiment.run",
    "load_trace": "experiment.run",
    "Client": "client.client",
    "Simulation": "experiment.results",
    "Comparison": "experiment.results",
    "Trace": "trace.importer",
    "TrineError": "core.errors",
    "Policy": "policy.base",
    "KeyPolicy": "policy.base",
    "SharePolicy": "policy.shares.base",
    "Placement": "placement.base",
    "View": "policy.view",
    "param": "core.params",
}
"""The module that each public name comes from. It is loaded at first use: training scripts, the command line and the
daemon import this package and must not pay for the simulator."""

__all__ = [
    "Client",
    "Comparison",
    "KeyPolicy",
    "Placement",
    "Policy",
    "SharePolicy",
    "Simulation",
    "Trace",
    "TrineError",
    "View",
    "__version__",
    "compare",
    "load_trace",
    "param",
    "simulate",
]


if not TYPE_CHECKING:  # a type checker sees the imports above, and a misspelt name

    def __getattr__(name: str) -> "Any":
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
