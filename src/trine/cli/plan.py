"""``trine plan``: the cheapest cluster on which jobs meet a target. Data on stdout, talk on stderr."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trine.cli.sim import AsJson, FormatName, Out, Prices, Sets, Throughputs, TracePath, WorkloadName

if TYPE_CHECKING:
    from trine.planning.capacity import Candidate, Search
    from trine.trace import Trace

HISTORY_FORMAT = "trine-history"
_AS_A_DAEMON = {"round_s": 60.0, "fill": True}
"""Free GPUs are given out at once, not with the next round."""


def plan(
    target: Annotated[
        str,
        typer.Option("--target", metavar="METRIC=DURATION", help="What to meet, such as wait_p95=1h."),
    ],
    nodes: Annotated[
        list[str], typer.Option("--nodes", metavar="TYPE=GPUS", help="Nodes that can be had, such as v100=8; repeated.")
    ],
    trace: TracePath = "",
    fmt: FormatName = "",
    workload: WorkloadName = "",
    history: Annotated[
        str,
        typer.Option("--history", metavar="FILE", help="What `trine history --out` wrote (CSV): the jobs that ended."),
    ] = "",
    state: Annotated[
        Path | None,
        typer.Option("--state", metavar="DIR", help="The jobs that ended under the daemon of this state directory."),
    ] = None,
    since: Annotated[
        str, typer.Option("--since", metavar="T", help="With --state: ended since then: 7d, 12h, 2030-01-31.")
    ] = "",
    prices: Prices = "",
    throughputs: Throughputs = "",
    policy: Annotated[str, typer.Option("--policy", metavar="P", help="See `trine policies`.  [default: trine]")] = "",
    placement: Annotated[str, typer.Option("--placement", metavar="L", help="See `trine placements`.")] = "",
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of everything random.")] = 0,
    sets: Sets = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Find the least capacity that meets a target.

    It is to hold on a trace, on a generated workload, or on what a daemon recorded. Without --prices the fewest GPUs
    are sought. Jobs must all fit: a cluster on which one can never run does not count.
    """
    from trine.assembly.settings import parse_pairs
    from trine.core.prices import Prices as PriceTable
    from trine.experiment.scenarios import Inputs, make_scenario
    from trine.inputs.prices import load_prices
    from trine.planning.capacity import Search, Target, parse_types
    from trine.report.page import require_page
    from trine.sim.scenario import types_alike

    if out:
        require_page()
    table = load_prices(prices) if prices else PriceTable()
    types = parse_types(nodes, table)
    asked = _asked_history(history, state, since, bool(trace or workload))
    inputs = Inputs(
        trace=asked.source if asked else history or trace,
        loaded=asked,
        format=HISTORY_FORMAT if history else fmt,
        workload=workload,
        cluster=f"{types[0].gpu_type}=1x{types[0].gpus}",
        throughputs=throughputs,
        values=(_AS_A_DAEMON if asked or history else {}) | parse_pairs(sets or []),
    )
    scenario = make_scenario(inputs, policy, placement, seed)
    search = Search(scenario, Target.parse(target), types, lambda tried: _say(search, tried))
    search.check_possible()
    if len(types) > 1 and not throughputs:
        typer.echo(f"note: {types_alike([each.gpu_type for each in types])}", err=True)
    best = search.cheapest()
    if out:
        from trine.planning.capacity_page import write_capacity_page

        write_capacity_page(search, best, out, "per hour" if prices else "GPUs")
        typer.echo(f"report: {out / 'report.html'}", err=True)
    _print(search, best, as_json, "per hour" if prices else "GPUs")
    if best is None:
        raise typer.Exit(1)


def _asked_history(history: str, state: Path | None, since: str, beside: bool) -> Trace | None:
    """The jobs that a daemon tells of now, if it is to be asked."""
    from trine.core.errors import InputError

    if since and state is None:
        raise InputError("--since", repr(since), "--state DIR beside it")
    if (history or state) and (beside or (history and state)):
        raise InputError("--history", "beside other jobs", "one of --trace, --workload, --history and --state")
    return None if state is None else _asked(state, since)


def _asked(state: Path, since: str) -> Trace:
    """What the daemon tells of its ended jobs."""
    import tempfile
    import time

    from trine.cli.live.history import csv_text, moment_s
    from trine.cli.live.verb import connected
    from trine.trace import load

    with connected(state) as client:
        found = list(client.history(moment_s(since, time.time(), "--since"), None))
    with tempfile.NamedTemporaryFile("w", suffix=".csv", encoding="utf-8") as file:
        file.write(csv_text(found))
        file.flush()
        return load(file.name, HISTORY_FORMAT)


def _say(search: Search, tried: Candidate) -> None:
    import math

    found = f"{tried.value_s:,.0f} s" if math.isfinite(tried.value_s) else "too small for some job"
    typer.echo(f"{search.cluster(tried)}: {found}{', enough' if tried.meets else ''}", err=True)


def _print(search: Search, best: Candidate | None, as_json: bool, unit: str) -> None:
    if as_json:
        import json

        typer.echo(json.dumps(_as_json(search, best)))
        return
    if best is None:
        typer.echo(f"No number of nodes of these types meets {_unmet(search)}.")
        return
    from trine.report.text import count

    least = f"; the largest job needs as many: {count(search.largest_gang, 'GPU')}" if search.is_least(best) else ""
    typer.echo(
        f"{search.cluster(best)}: {search.target.metric} {best.value_s:,.0f} s, {best.price_per_h:g} {unit}; "
        f"{count(len(search.tried), 'cluster')} simulated{least}."
    )


def _unmet(search: Search) -> str:
    """The target and, where more nodes stopped to help, how near they came."""
    metric, limit_s = search.target.metric, search.target.limit_s
    said = f"{metric} <= {limit_s:g} s"
    if not search.saturated:
        return said
    nearest = min(search.saturated, key=lambda each: each.value_s)
    said += f": {search.cluster(nearest)} gives {nearest.value_s:,.0f} s, and twice as many nodes change nothing"
    if 0 < limit_s < search.round_s:
        said += f"; jobs start at rounds, here every {search.round_s:g} s (--set round_s=T, or --set fill=true)"
    return said


def _as_json(search: Search, best: Candidate | None) -> dict[str, Any]:
    import math

    def plain(each: Candidate) -> dict[str, Any]:
        value_s = each.value_s if math.isfinite(each.value_s) else None
        cluster = search.cluster(each)
        return {"cluster": cluster, "price_per_h": each.price_per_h, "value_s": value_s, "meets": each.meets}

    tried = sorted(search.tried.values(), key=lambda each: (each.price_per_h, each.nodes))
    return {
        "target": {"metric": search.target.metric, "limit_s": search.target.limit_s},
        "best": None if best is None else plain(best),
        "tried": [plain(each) for each in tried],
    }
