"""The network in a run: which settings bring it, what goes with it and what does not, what is said of the jobs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trine.assembly.factory import performance_model
from trine.assembly.settings import resolve
from trine.core.cluster import Cluster, Links
from trine.core.errors import InputError
from trine.inputs.links import PRESETS
from trine.perf.model import PerfModel
from trine.perf.throughput import ThroughputTable
from trine.perf.variability import VariabilityTable
from trine.sim.scenario import Scenario, run

BARE = Cluster.uniform(4, 4, "v100", nodes_per_rack=2)
LINKED = replace(BARE, links=Links(20e9, 1e9, oversubscription=2.0))


def model(cluster: Cluster, **values: Any) -> PerfModel:
    settings = resolve("fifo", "packed-sticky", values)
    return performance_model(settings.run, cluster, VariabilityTable.of_cluster(cluster), ThroughputTable())


def uplink(perf: PerfModel) -> float:
    assert perf.network is not None
    return perf.network.capacity[len(BARE.nodes)]


@pytest.mark.parametrize(
    ("cluster", "values"),
    [
        (BARE, {}),
        (LINKED, {"network": "off"}),
        (LINKED, {"locality_penalty": 1.5}),
        (LINKED, {"rack_penalty": 2.0}),
        (LINKED, {"class_penalty": ("A=2",)}),
    ],
    ids=["no links stated", "off", "penalty", "penalty of racks", "penalty of a class"],
)
def test_there_is_none(cluster: Cluster, values: dict[str, Any]) -> None:
    assert model(cluster, **values).network is None


def test_a_cluster_that_states_links_brings_them() -> None:
    perf = model(LINKED)
    assert uplink(perf) == 1e9
    assert uplink(model(LINKED, oversubscription=4.0)) == 0.5e9
    assert uplink(model(LINKED, congestion=0.5)) == 0.5e9


def test_a_preset_takes_the_place_of_what_the_cluster_states() -> None:
    for cluster in (BARE, LINKED):
        perf = model(cluster, network="ethernet-100g")
        assert perf.network is not None and perf.network.links == PRESETS["ethernet-100g"]
    nic = PRESETS["ethernet-100g"].nic_bytes_per_s
    assert nic is not None
    assert uplink(model(BARE, network="ethernet-100g", oversubscription=4.0, congestion=0.5)) == 2 * nic / 4 * 0.5


def test_an_oversubscription_told_wins_over_stated_uplinks_of_cluster_and_types() -> None:
    stated = replace(LINKED, links=Links(20e9, 1e9, uplink_bytes_per_s=7e9))
    typed = replace(LINKED, type_links={"v100": Links(20e9, 1e9, uplink_bytes_per_s=7e9)})
    assert [uplink(model(cluster)) for cluster in (stated, typed)] == [7e9, 7e9]
    assert [uplink(model(cluster, oversubscription=2.0)) for cluster in (stated, typed)] == [1e9, 1e9]


@pytest.mark.parametrize(
    ("cluster", "values", "message"),
    [
        (LINKED, {"network": "cloud-tcp", "locality_penalty": 1.5}, "network=cloud-tcp and a locality penalty"),
        (BARE, {"network": "cloud-tcp", "class_penalty": ("A=2",)}, "network=cloud-tcp and a locality penalty"),
        (BARE, {"oversubscription": 4.0}, "oversubscription without links"),
        (LINKED, {"network": "off", "congestion": 0.5}, "congestion without links"),
        (LINKED, {"rack_penalty": 2.0, "oversubscription": 4.0}, "oversubscription without links"),
        (BARE, {"network": "ethernet-10g"}, "unknown network 'ethernet-10g'"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    cluster: Cluster, values: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        model(cluster, **values)


# -- runs --------------------------------------------------------------------------------------------------------


def scenario(policy: str = "fifo", placement: str = "packed-sticky", **values: Any) -> Scenario:
    told = {"workload.jobs": 20, "network": "cloud-tcp"} | {k.replace("__", "."): v for k, v in values.items()}
    return Scenario("2x2x4", policy, placement, workload="helios", values=told)


@pytest.mark.parametrize("values", [{"ideal": True}, {"compat__round_ends_early": True}], ids=["ideal", "early"])
def test_ways_to_pass_time_that_know_no_traffic_refuse_it(values: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"with a network.*network=off"):
        run(scenario("max-min-fairness", "packed", **values))
    assert run(scenario("max-min-fairness", "packed", network="off", **values)).summary.finished == 20


def test_models_of_which_nothing_is_known_are_named_once(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    rows = [f"{i},4,{i},10,{name}" for i, name in enumerate(("homemade", "vgg19", "homemade", "other"))]
    path.write_text("\n".join(["job_id,num_gpus,submit_time,duration,model", *rows]))
    notes = run(Scenario("2x2", trace=str(path), format="pal", values={"network": "cloud-tcp"})).notes
    (said,) = [note for note in notes if "Nothing is known of the communication" in note]
    assert "2 models (homemade, other)" in said
    notes = run(Scenario("2x2", trace=str(path), format="pal")).notes
    assert not any("Nothing is known" in note for note in notes)
