"""``trine allocate``: solve one allocation problem. Parses, calls a share policy, prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from trine.core.errors import InputError

if TYPE_CHECKING:
    from trine.policy.shares.allocation import Allocation
    from trine.policy.shares.base import SharePolicy
    from trine.policy.shares.problem import Problem

WANTED = "a JSON file that states an allocation problem (workers, jobs)"


def allocate(
    path: Annotated[str, typer.Argument(metavar="PROBLEM.json", help="Workers, jobs and throughputs; - for stdin.")],
    policy: Annotated[
        str, typer.Option("--policy", metavar="P", help="A policy that computes shares; see `trine policies`.")
    ] = "max-min-fairness",
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A parameter of the policy; may be repeated.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of policies that draw at random.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout and nothing else.")] = False,
) -> None:
    """Compute each job's share of time on each GPU type."""
    from time import process_time

    from trine.core.plugins import mistakes_in_files
    from trine.policy.shares.base import Memory
    from trine.policy.shares.problem_json import problem_from

    chosen = _policy(policy, sets or [])
    problem, notes = problem_from(_document(path), path)
    start_s = process_time()
    with mistakes_in_files():
        found = chosen.allocate(problem, Memory(seed))
        cpu_s = process_time() - start_s
        if as_json:
            _print_json(found.as_dict(problem) | {"cpu_s": cpu_s})
        else:
            _print_table(chosen, problem, found, cpu_s)
    for note in [*notes, *(n.text for n in found.notes)]:
        typer.echo(f"note: {note}", err=True)


def _policy(name: str, sets: list[str]) -> SharePolicy:
    from trine.assembly.settings import parse_pairs
    from trine.core.params import build
    from trine.core.plugins import find
    from trine.policy.shares.base import SharePolicy

    found: SharePolicy = build(
        find("trine.policy.shares", SharePolicy, "share policy", name, "--policy"), parse_pairs(sets)
    )
    return found


def _document(path: str) -> Any:
    import json
    import sys

    from trine.inputs.text_file import read_text

    text = sys.stdin.read() if path == "-" else read_text(path, WANTED)
    try:
        return json.loads(text, object_pairs_hook=lambda pairs: _once(path, pairs))
    except json.JSONDecodeError as error:
        raise InputError(f"{path}:{error.lineno}", f"not JSON ({error.msg})", WANTED) from None
    except RecursionError:
        raise InputError(path, "not JSON (nested too deeply)", WANTED) from None


def _once(path: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys occur once; JSON itself would let the last one win."""
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i]))
        raise InputError(path, f"key {twice!r} twice in one object", "every key once")
    return found


def _print_json(result: dict[str, Any]) -> None:
    import json

    typer.echo(json.dumps(result, allow_nan=False))


def _print_table(policy: SharePolicy, problem: Problem, found: Allocation, cpu_s: float) -> None:
    """Shares and throughputs, then why, then the objective. Time in pairs counts for both jobs."""
    from trine.cli.tables import print_table

    total = found.total()
    paired = total.sum(axis=1) - found.shares.sum(axis=1)
    rows = [["job", "gpus", *problem.columns, "steps/s", *(["in pairs"] if len(found.pair_jobs) else [])]]
    for i, job in enumerate(problem.ids):
        row = [job, str(problem.gang[i]), *(_share(v) for v in total[i]), f"{found.effective[i]:.4g}"]
        rows.append([*row, _share(paired[i])] if len(found.pair_jobs) else row)
    print_table(rows, numbers_from=1)
    for job, sentence in zip(problem.ids, policy.explain(problem, found), strict=True):
        typer.echo(f"job {job}: {sentence}")
    typer.echo(f"{policy.objective}: {found.objective:.6g} (gap {found.gap:.1e}, {found.solver}, {cpu_s * 1e3:.1f} ms)")


def _share(value: float) -> str:
    return f"{value:.4f}" if value > 5e-5 else "-"
