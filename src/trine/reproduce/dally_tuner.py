"""Whether the tuner finds timers as good as the best fixed ones of a sweep, told nothing of the scenario."""

from __future__ import annotations

from typing import Any

from trine.reproduce.checks import Check
from trine.reproduce.dally_bands import Results, mean_of
from trine.reproduce.dally_runs import AUTO, FULL, HOUR_S, MANUAL, NO_WAIT, Contender, delayed
from trine.reproduce.dally_settings import Setting
from trine.reproduce.panels import Found, Panel, Table

FIXED: dict[str, Contender] = {
    f"dally, {hours:g} h and {2 * hours:g} h": delayed(hours * HOUR_S, 2 * hours * HOUR_S) for hours in (1, 3, 24)
}
"""Beside those that are among the policies: nothing, 12 h and for ever."""
PAYS = "dally, tuned if it pays"
OTHERS: dict[str, Contender] = {**FIXED, PAYS: Contender("dally", "delay", {"tuner": "pays"})}
"""All policies that only this part needs."""
_ONE, _THREE, _DAY = FIXED
TIMERS = {NO_WAIT: "0", _ONE: "1 h", _THREE: "3 h", MANUAL: "12 h", _DAY: "24 h", FULL: "no end"}
"""Every fixed timer of the sweep by policy; for racks it is twice as long."""
TUNED = ("tuned", "tuned if it pays")


def judge(results: Results, settings: list[Setting], figures: dict[str, Any]) -> Found:
    """JCT by timer, and the distance of the tuner from the best of them, in every scenario."""
    allowed = float(figures["bands"]["tuner_percent"])
    checks = [_check(results, setting, allowed) for setting in settings]
    labels = [*TIMERS.values(), *TUNED]
    lines = [(s.name, [float(i) for i in range(len(labels))], _line(results, s)) for s in settings]
    panel = Panel(
        "Tuner: JCT by fixed timer, relative to the best of them",
        "Timer for a node (twice as long for a rack)",
        "JCT over the best fixed timer's (%)",
        lines,
        labels,
    )
    return Found(checks, [panel], [_table(results, settings)])


def _jcts(results: Results, setting: Setting) -> dict[str, float]:
    return {name: mean_of(results, setting, name, "jct_h") for name in (*TIMERS, AUTO, PAYS)}


def _line(results: Results, setting: Setting) -> list[float]:
    jcts = _jcts(results, setting)
    best = min(jcts[name] for name in TIMERS)
    return [100 * (jct / best - 1) for jct in jcts.values()]


def _table(results: Results, settings: list[Setting]) -> Table:
    rows = [(s.name, *(f"{jct:.2f}" for jct in _jcts(results, s).values())) for s in settings]
    return Table("Tuner: JCT h by timer for a node", ("scenario", *TIMERS.values(), *TUNED), rows)


def _check(results: Results, setting: Setting, allowed: float) -> Check:
    jcts = _jcts(results, setting)
    best = min(TIMERS, key=lambda name: jcts[name])
    above = 100 * (jcts[AUTO] / jcts[best] - 1)
    return Check(
        "tuner",
        f"{setting.name}: JCT over that of the best fixed timer",
        f"{above:+.1f} %",
        f"{jcts[best]:.2f} h with {TIMERS[best]}",
        "-",
        above <= allowed,
        f"at most {allowed:g} % above",
    )
