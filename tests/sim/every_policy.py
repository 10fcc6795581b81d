"""One small run of every policy in each of its variants; ``python -m tests.sim.every_policy`` prints their checksums.

A checksum covers the whole record of every job, of which ``jobs.csv`` shows a part. Kinds of runs: on three types by
the job's speed (``plain``, ``not aware``, ``pairs``), with the quirks of the published code (``as published``), and on
a cluster whose GPUs differ by type, chip and place (``three differences``).
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from threadpoolctl import threadpool_info

from trine.assembly.registry import find_policy, ordering_policies, share_policies
from trine.inputs.preset import load_preset
from trine.inputs.throughputs import load_throughputs, table_csv
from trine.sim.scenario import Scenario, run

SINGLE, GANGS = "gavel-continuous-single", "gavel-continuous-multiple"
FOR_GANGS, FOR_SINGLE = "v100=4x1,p100=4x1,k80=4x1", "v100=2x1,p100=2x1,k80=2x1"
WORLD = {"world.jobs": 24, "world.racks": 3, "world.nodes_per_rack": 2, "world.gpus_per_node": 4}
PLACEMENTS = {"trine": "trine", "dally": "delay"}


@cache
def pair_table() -> str:
    """Rates of the shipped table and of any two of its models on one GPU: 40 to 82 % of those alone."""
    table = load_throughputs("gavel-simulation")
    alone = {model: table.rates[model, 1] for model in table.models if (model, 1) in table.rates}
    pairs = {}
    for number, (one, other) in enumerate(combinations(sorted(alone), 2)):
        parts = 0.4 + 0.06 * (number % 8), 0.4 + 0.06 * (number % 5)
        types = [t for t in table.types if alone[one].get(t) and alone[other].get(t)]
        pairs[one, other, 1] = {t: (parts[0] * alone[one][t], parts[1] * alone[other][t]) for t in types}
    path = Path(mkdtemp()) / "pairs.csv"
    path.write_text(table_csv(replace(table, pairs=pairs)))
    return str(path)


def on_types(policy: str, **values: Any) -> Scenario:
    """Twelve jobs at six an hour on twelve GPUs, jobs of one GPU on six: all of them queue, pairs share GPUs."""
    single = policy in ("allox", "gandiva") or "space_sharing" in values
    given = {"round_s": 720, "workload.jobs": 12, "workload.jobs_per_h": 6.0, "workload.max_gpus": 4, **values}
    return Scenario(
        FOR_SINGLE if single else FOR_GANGS,
        policy,
        "packed-sticky",
        workload=SINGLE if single else GANGS,
        throughputs=pair_table() if single else "gavel-simulation",
        prices="v100=2.5,p100=1,k80=0.5",
        seed=1,
        values=given,
        authors=load_preset(GANGS).authors,
    )


def in_world(policy: str, **values: Any) -> Scenario:
    """Types, chips and links that differ."""
    return Scenario("", policy, PLACEMENTS.get(policy, "pal"), world="TVN", seed=1, values=WORLD | values)


def ordering_runs(policy: str) -> Iterator[tuple[str, Scenario]]:
    yield "plain", on_types(policy, policy_kind="ordering")
    yield "three differences", in_world(policy, policy_kind="ordering")
    if policy == "trine":
        yield "learned", in_world(policy, durations="learned")


def share_runs(policy: str) -> Iterator[tuple[str, Scenario]]:
    kind: dict[str, Any] = {"policy_kind": "shares"}
    yield "plain", on_types(policy, **kind)
    yield "as published", on_types(policy, compat="authors", **kind)
    params = find_policy(policy, prefer_shares=True).params
    if "aware" in params:
        yield "not aware", on_types(policy, aware=False, **kind)
        yield "not aware, as published", on_types(policy, aware=False, compat="authors", **kind)
    if "space_sharing" in params:
        yield "pairs", on_types(policy, space_sharing=True, **kind)
        yield "pairs, as published", on_types(policy, space_sharing=True, compat="authors", **kind)


def every_run() -> dict[str, Scenario]:
    found = {f"{name}: {what}": one for name in ordering_policies() for what, one in ordering_runs(name)}
    return found | {f"{name} (shares): {what}": one for name in share_policies() for what, one in share_runs(name)}


def checksum(scenario: Scenario) -> str:
    return hashlib.sha256(repr(run(scenario).jobs).encode()).hexdigest()


if __name__ == "__main__":
    # Without OpenBLAS, whose kernels can be chosen, there is none to name.
    kernel = next((lib["architecture"] for lib in threadpool_info() if lib["internal_api"] == "openblas"), "none")
    found = {name: checksum(one) for name, one in every_run().items()}
    json.dump({"kernel": kernel, "found": found}, sys.stdout, indent=1)
