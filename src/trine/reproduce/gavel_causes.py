"""Where the difference to the authors' code comes from: each quirk left out alone, and what rounds cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from trine.assembly.settings import RunSettings
from trine.core.params import params_of
from trine.policy.shares.rounds.round_params import RoundParams
from trine.reproduce.checks import Check
from trine.reproduce.gavel_data import GavelData
from trine.reproduce.gavel_runs import CONTENDERS, Asks, Keep, Key, Outcomes, first_failure, scenario
from trine.reproduce.gavel_tables import METRICS, failed
from trine.reproduce.panels import Found, Panel

CASES = {
    ("max_min_fairness_perf", "max_min_fairness"): "jct_h",
    ("fifo_perf", "max_min_fairness"): "jct_h",
    ("isolated", "max_min_fairness"): "jct_h",
    ("min_total_duration_perf", "minimize_makespan"): "makespan_h",
}
"""Policy and physical trace, and what counts there."""
NOTHING = 0.0005
"""Smaller changes are not told."""


@dataclass(frozen=True)
class Quirks:
    """The physical traces with all quirks but one."""

    name: ClassVar[str] = "one quirk less"

    def asks(self, data: GavelData, figures: dict[str, Any], quick: bool) -> Asks:
        del figures
        cases = list(CASES)[:1] if quick else list(CASES)
        return {
            ("quirk", *case, quirk): self._scenario(data, *case, quirk) for case in cases for quirk in ("", *_quirks())
        }

    def _scenario(self, data: GavelData, policy: str, trace: str, without: str) -> Any:
        values = {f"compat.{without}": False} if without else {}
        return scenario(
            "gavel-physical",
            CONTENDERS[policy],
            compat=True,
            throughputs="gavel-physical",
            trace=data.physical(trace),
            format="gavel",
            values=values,
        )

    def keep(self) -> dict[Key, Keep]:
        return {}

    def judge(self, data: GavelData, figures: dict[str, Any], outcomes: Outcomes) -> Found:
        del data, figures
        there = [case for case in CASES if ("quirk", *case, "") in outcomes]
        return Found([check for case in there for check in self._checks(*case, CASES[case], outcomes)])

    def _checks(self, policy: str, trace: str, metric: str, outcomes: Outcomes) -> list[Check]:
        """All quirks together, then what each does when it alone is left out, where that is anything."""
        runs = {key[3]: found for key, found in outcomes.items() if key[:3] == ("quirk", policy, trace)}
        label = f"{CONTENDERS[policy].label}, {METRICS[metric]}"
        lost = first_failure(runs.values())
        if lost:
            return [failed(self.name, label, lost)]
        base = getattr(runs[""], metric)
        change = {quirk: getattr(found, metric) / base - 1 for quirk, found in runs.items() if quirk}
        told = sorted((c for c in change.items() if abs(c[1]) >= NOTHING), key=lambda c: c[1])
        first = Check(self.name, f"{label}, all quirks", f"{base:.3f}")
        return [first, *(Check(self.name, f"{label}, without {q}", f"{100 * c:+.1f} %") for q, c in told)]


def _quirks() -> tuple[str, ...]:
    asked = scenario("gavel-physical", CONTENDERS["isolated"], compat=True, throughputs="", trace="-")
    return asked.authors


@dataclass(frozen=True)
class Ideal:
    """The shares carried out as a fluid, without rounds, beside the rounds."""

    name: ClassVar[str] = "rounds versus ideal"
    gaps_s: ClassVar[tuple[float, ...]] = (60.0, 180.0, 360.0, 720.0, 1440.0)

    def asks(self, data: GavelData, figures: dict[str, Any], quick: bool) -> Asks:
        del figures
        lengths = (180.0, 360.0, 720.0) if quick else self.gaps_s
        found: Asks = {("rounds", x): self._scenario(data, round_s=x) for x in lengths}
        if has_ideal():
            found["rounds", "ideal"] = self._scenario(data, ideal=True)
        return found

    def _scenario(self, data: GavelData, **values: Any) -> Any:
        return scenario(
            "gavel-physical",
            CONTENDERS["max_min_fairness_perf"],
            compat=False,
            throughputs="gavel-physical",
            trace=data.physical("max_min_fairness"),
            format="gavel",
            values=values,
        )

    def keep(self) -> dict[Key, Keep]:
        return {}

    def judge(self, data: GavelData, figures: dict[str, Any], outcomes: Outcomes) -> Found:
        del data, figures
        keys = [key for key in outcomes if key[0] == "rounds"]
        checks = [self._check(key, outcomes) for key in keys]
        if not has_ideal():
            checks.append(Check(self.name, "ideal, average JCT h", "not run: the simulator has no ideal mode"))
        there = [(key[1], outcomes[key].jct_h) for key in keys if key[1] != "ideal" and not outcomes[key].failure]
        lines = [("rounds", [x for x, _ in there], [y for _, y in there])]
        ideal = outcomes.get(("rounds", "ideal"))
        if ideal and not ideal.failure:
            lines.append(("ideal", [x for x, _ in there], [ideal.jct_h] * len(there)))
        panel = Panel("Rounds versus ideal: average JCT on the physical trace", "Round (s)", "Average JCT (h)", lines)
        return Found(checks, [panel] if len(there) > 1 else [])

    def _check(self, key: Key, outcomes: Outcomes) -> Check:
        what = "ideal, average JCT h" if key[1] == "ideal" else f"rounds of {key[1]:g} s, average JCT h"
        found = outcomes[key]
        return failed(self.name, what, found) if found.failure else Check(self.name, what, f"{found.jct_h:.3f}")


def has_ideal() -> bool:
    """Whether the simulator can carry out shares without rounds."""
    return "ideal" in params_of(RunSettings) or "ideal" in params_of(RoundParams)
