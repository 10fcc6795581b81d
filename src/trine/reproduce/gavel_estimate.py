"""What estimated rates of pairs cost: average JCT with 16 of 26 references and 60 % profiled, beside all known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from trine.reproduce.checks import Check
from trine.reproduce.gavel_data import GavelData
from trine.reproduce.gavel_runs import CONTENDERS, Asks, Contender, Keep, Key, Outcomes, scenario
from trine.reproduce.gavel_tables import failed
from trine.reproduce.panels import Found

REFERENCES, PROFILED = 16, 0.6
BAND = 0.10
SEEDS = 5
ORACLE: Key = ("estimate", "oracle")


@dataclass(frozen=True)
class Estimator:
    """The small trace under max-min fairness with space sharing."""

    name: ClassVar[str] = "estimator"

    def asks(self, data: GavelData, figures: dict[str, Any], quick: bool) -> Asks:
        del figures
        found: Asks = {ORACLE: self._scenario(data, CONTENDERS["max_min_fairness_packed"], quick)}
        for seed in range(1 if quick else SEEDS):
            told = {"space_sharing": True, "references": REFERENCES, "profiled": PROFILED, "rounds_seed": seed}
            contender = Contender("estimated", "max-min-fairness", told, pairs=True)
            found["estimate", seed] = self._scenario(data, contender, quick)
        return found

    def _scenario(self, data: GavelData, contender: Contender, quick: bool) -> Any:
        return scenario(
            "gavel-continuous-single",
            contender,
            compat=False,
            throughputs=data.pairs("simulation"),
            trace=data.small,
            cluster="v100=12x1,p100=12x1,k80=12x1",
            values={"window": "50:100" if quick else "300:400"},
        )

    def keep(self) -> dict[Key, Keep]:
        return {}

    def judge(self, data: GavelData, figures: dict[str, Any], outcomes: Outcomes) -> Found:
        del data, figures
        oracle = outcomes[ORACLE]
        if oracle.failure:
            return Found([failed(self.name, "all pairs known", oracle)])
        seeds = [key[1] for key in outcomes if key[0] == "estimate" and key != ORACLE]
        first = Check(self.name, "all pairs known, average JCT h", f"{oracle.jct_h:.3f}")
        return Found([first, *(self._check(seed, outcomes) for seed in seeds)])

    def _check(self, seed: int, outcomes: Outcomes) -> Check:
        what = f"{REFERENCES} of 26 references, {PROFILED:.0%} profiled, seed {seed}, over all pairs known"
        found, oracle = outcomes["estimate", seed], outcomes[ORACLE]
        if found.failure:
            return failed(self.name, what, found)
        off = found.jct_h / oracle.jct_h - 1
        band = f"within {BAND:.0%} of all pairs known"
        return Check(self.name, what, f"{found.jct_h:.3f} h ({off:+.1%})", "-", "-", abs(off) <= BAND, band)
