"""``python -m benchmarks [NAME ...]``: each benchmark in a process of its own; exit 1 if one is over its budget."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from benchmarks.cases import CASES, Case, Measured, measure
from benchmarks.solver import SOLVER_CASES

CASES.update(SOLVER_CASES)

HEADER = ("benchmark", "ours", "budget", "reference", "ratio", "peak memory", "")


def main(names: list[str]) -> int:
    unknown = sorted(set(names) - set(CASES))
    if unknown:
        print(f"unknown benchmark {unknown[0]!r}; known: {', '.join(CASES)}", file=sys.stderr)
        return 2
    print("".join(f"{name:<{width}}" for name, width in zip(HEADER, (46, 12, 12, 14, 10, 14, 0), strict=True)))
    failed = [case.name for case in CASES.values() if (not names or case.name in names) and not _show(case)]
    if failed:
        print(f"over budget: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _show(case: Case) -> bool:
    found = _in_own_process(case.name)
    if "skipped" in found:
        print(f"{case.title:<46}skipped: {found['skipped']}")
        return True
    ours = Measured(**found)
    ok = ours.value <= case.budget and ours.peak_mb <= case.budget_mb
    reference = f"{case.reference_s:g} s" if case.reference_s else "-"
    spent_s = ours.value / 1e3 if case.unit == "ms" else ours.value
    ratio = f"{case.reference_s / spent_s:.0f}x" if case.reference_s else "-"
    columns = (case.title, f"{ours.value:.3g} {case.unit}", f"{case.budget:g} {case.unit}", reference, ratio)
    line = "".join(f"{text:<{width}}" for text, width in zip(columns, (46, 12, 12, 14, 10), strict=True))
    print(f"{line}{f'{ours.peak_mb:.0f} MB':<14}{'ok' if ok else 'OVER BUDGET'}  {ours.detail}", flush=True)
    return ok


def _in_own_process(name: str) -> dict[str, Any]:
    """Measured in a fresh interpreter, so that memory and caches of one benchmark do not show in another."""
    command = [sys.executable, "-m", "benchmarks", "--measure", name]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(sys.argv[2])))
        sys.exit(0)
    sys.exit(main(sys.argv[1:]))
