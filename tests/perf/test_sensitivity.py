"""How much a job suffers from the worst tier it could get, against the best one an empty cluster has for it."""

from __future__ import annotations

import pytest

from trine.core.cluster import Cluster, Node, Tier
from trine.core.job import Job
from trine.inputs.links import PRESETS
from trine.perf.model import LocalityPenalty, PerfModel
from trine.perf.network import Network
from trine.perf.variability import VariabilityTable

PENALTY = LocalityPenalty(1.0, 1.5, 3.0, {"B": (1.1, 1.2)})
RACKS = Cluster.uniform(4, 4, nodes_per_rack=2)


def model(cluster: Cluster, penalty: LocalityPenalty = PENALTY) -> PerfModel:
    return PerfModel(cluster, VariabilityTable.of_cluster(cluster), penalty)


@pytest.mark.parametrize(
    ("gpus", "tier", "best", "sensitivity"),
    [(1, Tier.GPU, 1.0, 1.0), (4, Tier.NODE, 1.0, 3.0), (8, Tier.RACK, 1.5, 2.0), (9, Tier.NETWORK, 3.0, 1.0)],
)
def test_it_is_the_worst_tier_over_the_best(gpus: int, tier: Tier, best: float, sensitivity: float) -> None:
    perf, job = model(RACKS), Job("j", 0, gpus, 1)
    assert perf.best_tier(gpus, 0) is tier
    assert (perf.best_slowdown(job), perf.sensitivity(job)) == (best, sensitivity)


def test_classes_have_their_own() -> None:
    assert model(RACKS).sensitivity(Job("j", 0, 4, 1, app_class="B")) == pytest.approx(1.2)


def test_tiers_that_the_cluster_does_not_have_do_not_count() -> None:
    job = Job("j", 0, 2, 1)
    assert model(Cluster.uniform(2, 4)).sensitivity(job) == 1.5
    assert model(Cluster.uniform(1, 4)).sensitivity(job) == 1.0


def test_each_type_has_nodes_and_racks_of_its_own() -> None:
    cluster = Cluster((Node("n0", 8, "x", "r0"), Node("n1", 2, "y", "r0"), Node("n2", 2, "y", "r1")))
    perf = model(cluster)
    assert [perf.best_tier(2, t) for t in (0, 1)] == [Tier.NODE, Tier.NODE]
    assert [perf.best_tier(4, t) for t in (0, 1)] == [Tier.NODE, Tier.NETWORK]


def test_it_is_never_below_one() -> None:
    assert model(RACKS, LocalityPenalty(1.0, 0.8, 0.9)).sensitivity(Job("j", 0, 4, 1)) == 1.0


def test_what_was_measured_of_a_model_wins_over_what_is_assumed() -> None:
    measured = {("m", Tier.RACK): 2.0, ("m", Tier.NETWORK): 5.0, ("half", Tier.NETWORK): 4.0}
    perf = PerfModel(RACKS, VariabilityTable.of_cluster(RACKS), PENALTY, measured_slowdowns=measured)
    assert perf.tier_slowdowns(Job("j", 0, 4, 1, model="m")) == (1.0, 1.0, 2.0, 5.0)
    assert perf.tier_slowdowns(Job("j", 0, 4, 1, model="other")) == (1.0, 1.0, 1.5, 3.0)
    assert perf.tier_slowdowns(Job("j", 0, 4, 1, model="half")) == (1.0, 1.0, 1.5, 4.0)
    # A gang that no node holds: only the ratio of the two wider tiers says something of it.
    assert perf.sensitivity(Job("j", 0, 8, 1, model="m")) == pytest.approx(2.5)
    assert perf.sensitivity(Job("j", 0, 8, 1, model="half")) == pytest.approx(2.0)


def test_gpus_out_of_service_may_leave_only_a_worse_tier() -> None:
    assert RACKS.largest("gpu").tier_of(4) is Tier.NODE
    assert RACKS.largest("gpu", {0: 1, 1: 1, 2: 1, 3: 1}).tier_of(4) is Tier.RACK
    assert RACKS.largest("gpu", {0: 1, 1: 1, 2: 1, 3: 1}).tier_of(7) is Tier.NETWORK


# -- with links in place of penalties ----------------------------------------------------------------------------


def linked(preset: str, cluster: Cluster = RACKS) -> PerfModel:
    return PerfModel(cluster, VariabilityTable.of_cluster(cluster), network=Network(cluster, PRESETS[preset]))


@pytest.mark.parametrize("model_name", ["VGG-16", "ResNet-50", "Recommendation", "something unknown"])
@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_the_best_tier_costs_nothing_and_no_tier_less_than_the_one_below(preset: str, model_name: str) -> None:
    perf = linked(preset)
    for gpus in range(1, 17):
        job = Job("j", 0, gpus, 1, model=model_name)
        slowdowns = perf.tier_slowdowns(job)
        assert perf.best_slowdown(job) == slowdowns[perf.best_tier(gpus, 0)] == pytest.approx(1.0)
        assert list(slowdowns) == sorted(slowdowns)
        assert perf.sensitivity(job) == pytest.approx(slowdowns[Tier.NETWORK])


def test_a_slower_network_makes_a_gang_more_sensitive_and_single_gpus_never() -> None:
    gang, single = (Job("j", 0, gpus, 1, model="VGG-16") for gpus in (4, 1))
    fast, slow = linked("dgx-ib"), linked("cloud-tcp")
    assert 1.0 <= fast.sensitivity(gang) < 1.3 < slow.sensitivity(gang)
    assert slow.sensitivity(single) == fast.sensitivity(single) == 1.0


def test_slowdowns_by_tier_are_speeds_of_compact_places_alone() -> None:
    perf, job = linked("cloud-tcp"), Job("j", 0, 4, 1, model="VGG-16")
    places = {Tier.NODE: (0, 1, 2, 3), Tier.RACK: (0, 1, 4, 5), Tier.NETWORK: (0, 1, 8, 9)}
    for tier, gpus in places.items():
        assert perf.speed(job, gpus).network == pytest.approx(perf.tier_slowdowns(job)[tier])
