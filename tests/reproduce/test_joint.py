"""``trine reproduce joint``: who is compared, what bars hold, and a whole run in worlds made tiny."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from trine.assembly.settings import resolve
from trine.core.errors import InputError
from trine.inputs.yaml_reader import read_mapping
from trine.reproduce.experiment import Contender, Outcome, contenders_of
from trine.reproduce.joint import PAPER, WITHOUT_PAL, WITHOUT_WORLDS, Ablation, experiments
from trine.reproduce.joint_settings import KNOWN, LEARNED, Axis, JointInputs, joint_inputs, world_setting
from trine.reproduce.joint_worlds import AgainstAll
from trine.reproduce.paired_comparison import Setting
from trine.reproduce.reproduction import Part, write_page
from trine.sim.scenario import Scenario

SETTING = Setting("here", (Scenario(), Scenario()))


@dataclass(frozen=True)
class Figures:
    """An outcome with made-up figures."""

    jct_h: float = 20.0
    jct_p99_h: float = 200.0
    makespan_h: float = 500.0
    rho_mean: float = 0.8
    rho_max: float = 3.0
    preemptions: float = 1.0
    moves: float = 3.0
    stops_and_moves: float = 4.0


def figures() -> dict[str, Any]:
    found: dict[str, Any] = read_mapping(PAPER.figures).plain()
    return found


def inputs(given: dict[str, Any] | None = None) -> JointInputs:
    return JointInputs(Path("nowhere"), Path("nowhere"), figures() if given is None else given)


def judged(setting: Setting = SETTING, **changed: Figures) -> Part:
    """The main table where all contenders are alike but those named ``learned``, ``known`` and ``best``."""
    names = {"learned": LEARNED, "known": KNOWN, "best": "SRSF, packed anew"}
    experiment = AgainstAll("all three", setting, figures()["bars"], figures()["bars"]["stops_and_moves"])
    found = dict.fromkeys(experiment.contenders(inputs()), Figures())
    found |= {names[name]: value for name, value in changed.items()}
    outcomes: dict[Any, Any] = {(setting.name, name, s): one for name, one in found.items() for s in setting.seeds}
    return experiment.judge(inputs(), outcomes)


def held(part: Part, *words: str) -> list[bool | None]:
    return [check.held for check in part.checks if all(word in check.what for word in words)]


# -- who is compared -------------------------------------------------------------------------------------------------


def every_contender() -> dict[str, Contender]:
    known = figures()
    named = contenders_of(known["contenders"])
    for ground in ("pal", "static"):
        named |= contenders_of(known[ground]["more"])
    return named | Ablation(SETTING).contenders(inputs())


@pytest.mark.parametrize("contender", every_contender().values(), ids=every_contender())
def test_every_contender_is_a_policy_with_a_placement_and_settings_that_exist(contender: Contender) -> None:
    settings = resolve(contender.policy, contender.placement, contender.values)
    assert settings.run.round_s > 0


def test_groups_and_grounds_name_contenders_that_exist_each_in_one_group() -> None:
    known, named = figures(), set(contenders_of(figures()["contenders"]))
    grouped = [name for group, names in known["groups"].items() if group != "source" for name in names]
    assert sorted([*grouped, LEARNED, KNOWN]) == sorted(named)
    assert set(known["sweeps"]["contenders"]) <= named
    assert set(known["prototype"]["names"]) <= named


def test_only_the_variant_that_knows_run_times_meets_contenders_that_do() -> None:
    rows = judged().tables[-1].rows
    against = {row[0] for row in rows}
    assert f"{KNOWN} against SRSF, packed anew" in against
    assert f"{LEARNED} against SRSF, packed anew" not in against


# -- bars ------------------------------------------------------------------------------------------------------------


def test_bars_hold_and_goals_are_shown_without_counting() -> None:
    part = judged(learned=Figures(jct_h=15.0), known=Figures(jct_h=14.0))
    assert held(part, LEARNED, ": JCT against the best of ancestors") == [True, False, True, True]
    goals = [check for check in part.checks if check.what.endswith("goal")]
    assert [(check.held, check.counted) for check in goals[:2]] == [(False, False), (True, False)]  # 25 % lower
    assert len(goals) == 4


def test_a_better_combination_breaks_the_bar_of_the_variant_it_is_compared_with_alone() -> None:
    part = judged(learned=Figures(jct_h=15.0), known=Figures(jct_h=14.0), best=Figures(jct_h=14.5))
    combined = [c for c in part.checks if ": JCT against" in c.what and "combinations" in c.what and c.counted]
    assert [(c.what.split(":")[0], c.held) for c in combined] == [(LEARNED, True), (KNOWN, False)]


def test_many_stops_and_moves_break_a_bar() -> None:
    assert held(judged(), "stops and moves") == [True, True]
    assert held(judged(known=Figures(stops_and_moves=8.5)), "stops and moves") == [True, False]


def test_nothing_is_held_where_worlds_were_drawn() -> None:
    assert judged(Setting("drawn", SETTING.scenarios, judged=False)).checks == []


def test_a_run_that_failed_is_outside_its_bar() -> None:
    broken: Any = Outcome("RuntimeError: gone")
    experiment = AgainstAll("all three", SETTING, figures()["bars"])
    outcomes: dict[Any, Any] = {("here", n, s): Figures() for n in experiment.contenders(inputs()) for s in range(2)}
    outcomes["here", LEARNED, 1] = broken
    from trine.reproduce.experiment import _judged

    (check,) = _judged(experiment, inputs(), outcomes).checks
    assert (check.held, "gone" in check.ours) == (False, True)


def test_the_prototypes_figures_stand_beside_ours(tmp_path: Path) -> None:
    worlds = []
    for seed, jct in ((1, 16.0), (2, 25.0)):
        folder = tmp_path / f"TVN-load0.9-seed{seed}"
        folder.mkdir()
        names = figures()["prototype"]["names"].values()
        (folder / "prototype_results.json").write_text(json.dumps({name: {"jct": jct} for name in names}))
        worlds.append(Scenario(world=str(folder)))
    part = judged(Setting("TVN", tuple(worlds)), learned=Figures(jct_h=16.0))
    ours = {check.what: check for check in part.checks if "prototype" in check.what}
    assert (ours[f"{LEARNED}: JCT over the prototype's"].reference, len(ours)) == ("20.50 h", 9)
    assert ours[f"{LEARNED}: JCT over the prototype's"].held is False  # 0 and -36 %: further below than is plausible
    assert ours["Gavel: JCT over the prototype's"].counted is False


# -- settings --------------------------------------------------------------------------------------------------------


def test_reference_worlds_are_read_where_they_are_at_hand(tmp_path: Path) -> None:
    (tmp_path / "data" / "worlds").mkdir(parents=True)
    here = joint_inputs(str(tmp_path), tmp_path, figures(), quick=False)
    setting = world_setting(here, here.figures["worlds"]["main"])
    assert setting.judged
    assert [Path(s.world).name for s in setting.scenarios] == [f"TVN-load0.9-seed{n}" for n in range(1, 6)]
    assert not world_setting(inputs(), figures()["worlds"]["main"]).judged


def test_an_axis_changes_what_it_names_and_the_usual_value_is_run_once() -> None:
    axes = {given["name"]: Axis.of(inputs(), given) for given in figures()["sweeps"]["axes"]}
    usual = {repr(axis.at(inputs(), axis.usual).scenarios) for axis in axes.values()}
    assert len(usual) == 1
    wrong = axes["prediction error"].at(inputs(), 40.0).scenarios[0].values
    assert {k: v for k, v in wrong.items() if k.startswith("believed.")} == pytest.approx(
        {"believed.type_error": 0.4, "believed.traffic_error": 0.8, "believed.chip_error": 0.1}
    )
    eight = axes["GPUs of a node"].at(inputs(), 8.0).scenarios[0].values
    usual_values = axes["GPUs of a node"].at(inputs(), 4.0).scenarios[0].values
    assert eight["world.gpus_per_node"] * eight["world.nodes_per_rack"] == 4 * usual_values["world.nodes_per_rack"]


def test_a_folder_that_does_not_exist_is_a_mistake() -> None:
    with pytest.raises(InputError, match="--data"):
        PAPER.reproduce("no/such/folder")


# -- a whole run -----------------------------------------------------------------------------------------------------


def tiny() -> dict[str, Any]:
    """The same experiments on 24 GPUs with a dozen jobs each."""
    given = copy.deepcopy(figures())
    small = {"jobs": 12, "racks": 3, "nodes_per_rack": 2}
    given["worlds"]["drawn"] = given["quick"]["drawn"] = small
    given["worlds"]["alone"] = [{"kind": "N", "load": 0.8, "seeds": 1}]
    given["quick"]["ablation"] = ["without types"]
    given["gavel"]["jobs"] = 6
    given["static"]["quick"] = [8]
    given["sweeps"]["axes"] = [axis for axis in given["sweeps"]["axes"] if axis["setting"] == "error"]
    return given


def test_without_data_everything_is_drawn_and_comes_out(tmp_path: Path) -> None:
    found = PAPER.reproduce(figures=tiny(), workers=1, quick=True)
    assert {WITHOUT_WORLDS, WITHOUT_PAL} <= set(found.notes)
    assert not [check for check in found.checks if "failed" in check.ours]
    titles = [table.title for table in found.tables]
    assert [title for title in titles if title.startswith("Sweep")] == ["Sweep: JCT by prediction error, 1 seeds"]
    assert any(title.startswith("Ablation") for title in titles)
    assert len(found.panels) == 2 + 1 + 1 + 1  # each kind of world, the bound, the ablation, the axis
    (below,) = [check for check in found.checks if check.experiment == "how far from optimal"]
    assert below.held
    bound = next(table for table in found.tables if "what is possible" in table.title)
    assert [row[-2:] for row in bound.rows] == [("-23", "-30"), ("-12", "-20"), ("-25", "-35"), ("-20", "-30")]
    write_page(found, tmp_path / "page")
    assert "Ablation" in (tmp_path / "page" / "report.html").read_text()
    assert json.loads(json.dumps(found.as_dict()))["tables"]


def test_quick_wants_fewer_runs() -> None:
    whole, quick = (
        sum(len(e.runs(here)) for e in experiments(here))
        for here in (inputs(), JointInputs(Path("nowhere"), Path("nowhere"), figures(), quick=True))
    )
    assert quick < whole / 2
