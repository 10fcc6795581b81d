"""What a run tells of the network: tuned waits in log, notes and page, GPU time by tier, load of the links."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.report.test_page import figures_of
from tests.sim.tiny import simulate
from trine.core.cluster import Cluster, Links, Tier
from trine.core.job import Job
from trine.core.result import RunResult
from trine.report.run_page import run_page
from trine.sim import metrics, recorder
from trine.sim.scenario import Scenario, run

MODEL = "LM (batch size 20)"
LINKS = Links(intra_node_bytes_per_s=10e9, nic_bytes_per_s=1.8e9, oversubscription=4)
CLUSTER = "shape: v100=2x2x2\nlinks: {intra_node: 10 GB/s, nic: 1.8 GB/s, oversubscription: 4}\n"


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunResult, list[dict[str, Any]]]:
    """A crowded cluster under ``delay``, with its decision log."""
    folder: Path = tmp_path_factory.mktemp("crowded")
    (folder / "cluster.yaml").write_text(CLUSTER)
    rows = [f"j{i},{600 * i},{(1, 2, 3, 4)[i % 4]},{4000 + 500 * (i % 7)},{MODEL}\n" for i in range(60)]
    (folder / "trace.csv").write_text("job_id,submit_s,gpus,duration_s,model\n" + "".join(rows))
    log: list[dict[str, Any]] = []
    scenario = Scenario(str(folder / "cluster.yaml"), "las", "delay", str(folder / "trace.csv"), "trine")
    return run(scenario, log=log.append), log


def test_changes_of_timers_are_in_the_decision_log_in_order(told: tuple[RunResult, list[dict[str, Any]]]) -> None:
    result, log = told
    timers = [entry for entry in log if entry["action"] == "timer"]
    assert [(e["t"], e["demand"], e["tier"], e["timer_s"]) for e in timers] == [
        (c.at_s, c.gpus, c.tier.label, c.timer_s) for c in result.timers
    ]
    assert len(timers) > 3
    assert [e["t"] for e in log] == sorted(e["t"] for e in log)
    assert "wait up to" in timers[0]["reason"]


def test_a_note_says_what_they_were_tuned_to(told: tuple[RunResult, list[dict[str, Any]]]) -> None:
    result, _ = told
    (note,) = [n for n in result.notes if "tuned" in n]
    assert f"tuned {len(result.timers)} times" in note


def test_the_page_shows_waits_links_and_where_time_went(told: tuple[RunResult, list[dict[str, Any]]]) -> None:
    result, _ = told
    page = run_page(result)
    figures = figures_of(page)
    assert {"timers", "links", "tier-time"} <= figures.keys()
    lines = {line["name"]: line for line in figures["timers"]["data"]}
    for (gpus, tier), name in (((2, Tier.NODE), "2 GPUs in one node"), ((3, Tier.RACK), "3 GPUs in one rack")):
        last = [c.timer_s for c in result.timers if (c.gpus, c.tier) == (gpus, tier)][-1]
        assert lines[name]["y"][-1] == pytest.approx(last / 3600, abs=0.01)
    across = sum(t.comm_gpu_s for t in result.tier_times if t.tier > Tier.NODE)
    assert 0 < across < result.summary.comm_gpu_s
    assert "of the GPU time is communication" in page


def test_a_run_without_network_has_none_of_it() -> None:
    out = simulate([Job("a", 0, 4, 100)], Cluster.uniform(2, 2))
    assert out.world.link_loads is None
    assert metrics.tier_times(out.world.recorder) == []
    assert metrics.timer_sentences([]) == []


def test_gpu_time_by_tier_adds_up() -> None:
    """Two GPUs on one node for 100 s of compute and packed communication, four on two nodes."""
    cluster = Cluster(Cluster.uniform(2, 2, "v100").nodes, links=LINKS)
    out = simulate([Job("a", 0, 2, 1000, model=MODEL), Job("b", 0, 4, 1000, model=MODEL)], cluster, event_driven=True)
    times = {t.tier: t for t in metrics.tier_times(out.world.recorder)}
    assert times[Tier.NODE].held_gpu_s == pytest.approx(2 * 1000)
    assert times[Tier.RACK].held_gpu_s == pytest.approx(4 * 1000)
    assert sum(t.comm_gpu_s for t in times.values()) == pytest.approx(out.summary.comm_gpu_s)
    for job, tier in (("a", Tier.NODE), ("b", Tier.RACK)):
        assert times[tier].comm_gpu_s == pytest.approx(out.lives[job].comm_gpu_s)


def test_links_are_looked_at_a_bounded_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "MAX_LINK_SAMPLES", 10)
    cluster = Cluster(Cluster.uniform(2, 2, "v100").nodes, links=LINKS)
    jobs = [Job(f"j{i}", 0, 3, 900, model=MODEL) for i in range(100)]
    out = simulate(jobs, cluster, round_s=300.0)
    assert out.world.link_loads is not None
    samples = out.world.link_loads.samples
    assert 5 <= len(samples) <= 10
    assert samples[-1].at_s > 0.7 * out.summary.makespan_s
    assert all(0 < s.nic <= 1 and s.uplink == 0 for s in samples[:-1])
