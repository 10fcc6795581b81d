"""World directories: ``trine sim run --world DIR`` in place of a trace and a cluster."""

from __future__ import annotations

import gzip
import json
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from trine.cli.main import main
from trine.core.cluster import Tier
from trine.core.errors import InputError
from trine.perf.collectives import p_norm
from trine.perf.network import Network
from trine.sim.scenario import Scenario, run
from trine.sim.worlds.load import load_world

CLUSTER = {
    "nic_bytes_per_s": 1e9,
    "uplink_bytes_per_s": 0.5e9,
    "intra_node_bytes_per_s": {"v100": 20e9, "k80": 5e9},
    "gpus_per_node": 2,
    "nodes_per_rack": 2,
    "round_s": 120,
    "restart_s": 7,
}
GPUS = "gpu,node,rack,type,slowdown_A,slowdown_B\n" + "".join(
    f"{g},{g // 2},{g // 4},{'v100' if g < 8 else 'k80'},{1.5 if g == 0 else 1.0},1\n" for g in range(12)
)
JOBS = (
    "job_id,submit_s,gpus,work_s_on_v100,class,model,speed_v100,speed_k80,compute_s_per_iteration_v100,gradient_bytes,"
    "overlap_gamma\n"
    "one,10,1,600,A,m (batch size 8),1,0.25,0.1,1e8,2\n"
    "two,0,2,900,B,m (batch size 8),1,0.25,0.1,1e8,2\n"
    "wide,20,8,1200,B,n,1,0,0.2,2e8,1\n"
)


@pytest.fixture
def world(tmp_path: Path) -> Path:
    folder = tmp_path / "W-load1-seed1"
    folder.mkdir()
    (folder / "cluster.json").write_text(json.dumps(CLUSTER))
    (folder / "gpus.csv").write_text(GPUS)
    (folder / "jobs.csv.gz").write_bytes(gzip.compress(JOBS.encode(), mtime=0))
    return folder


def test_gpus_nodes_racks_links_and_chips(world: Path) -> None:
    cluster = load_world(str(world)).cluster
    assert (cluster.gpu_count, len(cluster.nodes), len(cluster.racks)) == (12, 6, 3)
    assert cluster.gpus_by_type == {"v100": 8, "k80": 4}
    assert (cluster.tier([0, 1]), cluster.tier([0, 2]), cluster.tier([2, 4])) == (Tier.NODE, Tier.RACK, Tier.NETWORK)
    links = cluster.links
    assert (links.nic_bytes_per_s, links.uplink_bytes_per_s) == (1e9, 0.5e9)
    assert (links.node_latency_s, links.rack_latency_s, links.network_latency_s) == (5e-6, 20e-6, 40e-6)
    assert cluster.type_links["k80"].intra_node_bytes_per_s == 5e9
    assert cluster.scores == {"A": (1.5, *[1.0] * 11), "B": (1.0,) * 12}


def test_work_is_seconds_on_the_reference_type_at_the_best_placement(world: Path) -> None:
    loaded = load_world(str(world))
    two, one, wide = loaded.jobs
    assert [job.id for job in loaded.jobs] == ["two", "one", "wide"]
    assert [job.ideal_s for job in loaded.jobs] == pytest.approx([900, 600, 1200])
    assert one.step_s == 0.1
    # Two GPUs of a node reduce 1e8 bytes at 20 GB/s in two steps: 2 (c-1)/c S/B + 2 (c-1) a.
    assert two.step_s == pytest.approx((0.1**2 + (1e8 / 20e9 + 2 * 5e-6) ** 2) ** 0.5)
    # Eight lie on four nodes of two racks; nothing overlaps (exponent 1) and the uplink is the narrowest link.
    inter_s = 2 * 3 / 4 * 2e8 / 0.5e9 + 6 * 40e-6
    assert wide.step_s == pytest.approx(0.2 + (2e8 / 20e9 + 2 * 5e-6) + inter_s)
    assert (one.model, one.batch_size, one.app_class, wide.batch_size) == ("m (batch size 8)", 8, "A", None)


def test_only_compute_is_slower_on_another_type(world: Path) -> None:
    rates = load_world(str(world)).throughputs
    slow_s = ((0.1 / 0.25) ** 2 + (1e8 / 5e9 + 2 * 5e-6) ** 2) ** 0.5
    assert rates.rate("m (batch size 8)", 2, "k80") == pytest.approx(1 / slow_s)
    assert rates.rate("n", 8, "k80") == 0


def test_traffic_and_speeds_are_handed_on_and_agree_with_the_network_model(world: Path) -> None:
    loaded = load_world(str(world))
    network = Network(loaded.cluster, traffic=loaded.traffic)
    for job in loaded.jobs:
        traffic = loaded.traffic.of(job.model)
        assert traffic.restart_s == 7
        for gpu_type in loaded.cluster.types:
            speed, rate = (
                loaded.type_speeds[job.model][gpu_type],
                loaded.throughputs.rate(job.model, job.gpus, gpu_type),
            )
            if speed and loaded.cluster.gpus_by_type[gpu_type] >= job.gpus:
                comm_s = network.comm_s(traffic, network.best_route(job.gpus, gpu_type))
                assert p_norm(traffic.compute_s / speed, comm_s, traffic.overlap) == pytest.approx(1 / (rate or 0))
    assert loaded.traffic.unknown_models() == ()


def test_jobs_run_as_the_world_says(world: Path) -> None:
    (world / "gpus.csv").write_text(GPUS.replace("v100", "k80", 6).replace("1.5", "1.0"))
    result = run(Scenario(world=str(world), policy="srtf", values={"event_driven": True, "oversize": "skip"}))
    records = {record.job_id: record for record in result.jobs}
    assert set(records) == {"one", "two"}
    # Both V100 GPUs go to the gang, which came first: the other job computes at a quarter of the speed.
    assert records["two"].jct_s == pytest.approx(900)
    assert records["one"].jct_s == pytest.approx(600 / 0.25)
    assert any("jobs that can never run here were skipped" in note for note in result.notes)


def test_slow_chips_slow_the_jobs_of_their_class(world: Path) -> None:
    only = JOBS.splitlines(keepends=True)[:2]
    (world / "jobs.csv.gz").write_bytes(gzip.compress("".join(only).encode(), mtime=0))
    (world / "gpus.csv").write_text(GPUS.replace(",1.0,1\n", ",1.5,1\n"))
    assert run(Scenario(world=str(world), values={"event_driven": True})).jobs[0].jct_s == pytest.approx(900)


def test_round_and_restart_come_from_the_world_unless_told_otherwise(world: Path) -> None:
    def settings(**values: float) -> tuple[float, float]:
        found = run(Scenario(world=str(world), values=values)).settings["settings"]["run"]
        return found["round_s"], found["restore_s"]

    assert settings() == (120, 7)
    assert settings(round_s=60.0) == (60, 7)
    assert settings(restore_s=0.0, round_s=60.0) == (60, 0)


def test_the_same_world_gives_the_same_results_and_a_changed_one_others(world: Path) -> None:
    scenario = Scenario(world=str(world))
    first, again = (run(scenario).jobs for _ in range(2))
    assert first == again
    (world / "gpus.csv").write_text(GPUS.replace("k80", "v100"))
    assert run(replace(scenario)).jobs != first


Change = Callable[[Path], object]


def edit(name: str, old: str, new: str, count: int = 1) -> Change:
    def change(folder: Path) -> None:
        path = folder / name
        text = gzip.decompress(path.read_bytes()).decode() if name.endswith(".gz") else path.read_text()
        assert old in text
        data = text.replace(old, new, count).encode()
        path.write_bytes(gzip.compress(data, mtime=0) if name.endswith(".gz") else data)

    return change


def gone(name: str) -> Change:
    return lambda folder: (folder / name).unlink()


BAD: list[tuple[Change, str]] = [
    (gone("cluster.json"), "no file cluster.json; expected a world directory"),
    (gone("gpus.csv"), "no file gpus.csv or gpus.csv.gz"),
    (gone("jobs.csv.gz"), "no file jobs.csv or jobs.csv.gz"),
    (edit("cluster.json", "nic_bytes", "nik_bytes"), "nic_bytes_per_s"),
    (edit("cluster.json", '"round_s"', '"rounds": 1, "round_s"'), "unknown key 'rounds'"),
    (edit("cluster.json", "1000000000.0", "0"), "nic_bytes_per_s: found '0'; expected a number greater than 0"),
    (edit("cluster.json", '"v100"', '"a100"'), "no v100; expected v100, on which work is stated"),
    (edit("cluster.json", '"gpus_per_node": 2', '"gpus_per_node": 4'), "expected 4 per node and at most 2 per rack"),
    (edit("gpus.csv", "rack", "rak"), "gpus.csv:1: rack: no such column (did you mean 'rak'?)"),
    (edit("gpus.csv", "slowdown_B", "speed_B"), "gpus.csv:1: unknown column 'speed_B'"),
    (edit("gpus.csv", "slowdown_B", "slowdown_A"), "slowdown_A: the column appears twice"),
    (edit("gpus.csv", "k80", "k8"), "gpus.csv:10: type: unknown GPU type 'k8' (did you mean 'k80'?)"),
    (edit("gpus.csv", "\n5,", "\n4,"), "gpus.csv:7: gpu: GPU 4 again, first on line 6"),
    (edit("gpus.csv", "\n11,", "\n13,"), "gpu: no row for GPU 11; expected GPU ids from 0 to 11"),
    (
        edit("gpus.csv", "\n3,1,", "\n3,0,"),
        "gpus.csv:5: node: GPU 3 is on node '0', and GPUs of other nodes lie between",
    ),
    (edit("gpus.csv", "\n1,0,0,v100", "\n1,0,0,k80"), "type: 'k80' on node '0', and 'v100' on line 2"),
    (edit("gpus.csv", "1.5", "0"), "gpus.csv:2: slowdown_A: found 0; expected a slowdown above 0"),
    (edit("gpus.csv", ",1.5,", ","), "gpus.csv:2: 5 columns; expected 6"),
    (edit("jobs.csv.gz", "work_s_on_v100", "work_s"), "jobs.csv.gz:1: work_s_on_v100: no such column"),
    (edit("jobs.csv.gz", "speed_k80", "speed_k90"), "speed_k80: no such column; expected a speed for every GPU type"),
    (edit("jobs.csv.gz", ",A,", ",Z,"), "jobs.csv.gz:2: class: unknown class 'Z'; expected one of A, B"),
    (edit("jobs.csv.gz", "two,", "one,"), "jobs.csv.gz:3: job id 'one' again, first on line 2"),
    (edit("jobs.csv.gz", ",2,900", ",0,900"), "jobs.csv.gz:3: gpus: found '0'; expected a whole number of at least 1"),
    (edit("jobs.csv.gz", "900", "0"), "work_s_on_v100: found '0'; expected a number above 0"),
    (edit("jobs.csv.gz", "900", "much"), "work_s_on_v100: found 'much'; expected a number"),
    (edit("jobs.csv.gz", "1e8,2\nwide", "2e8,2\nwide"), "jobs.csv.gz:3: model: other speeds or traffic of 'm (batch"),
    (edit("jobs.csv.gz", ",8,1200", ",9,1200"), "jobs.csv.gz:4: gpus: job wide can never run"),
]


@pytest.fixture
def _interrupt_as_before() -> Iterator[None]:
    """The command sets its own handler of Ctrl-C."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


Capture = pytest.CaptureFixture[str]


def trine(patch: pytest.MonkeyPatch, capture: Capture, *words: str) -> tuple[int, str, str]:
    patch.setattr(sys, "argv", ["trine", "sim", *words])
    with pytest.raises(SystemExit) as left:
        main()
    return int(left.value.code or 0), *capture.readouterr()


@pytest.mark.usefixtures("_interrupt_as_before")
@pytest.mark.parametrize(("change", "complaint"), BAD, ids=[complaint[:50] for _, complaint in BAD])
def test_bad_input_is_one_sentence(
    world: Path, change: Change, complaint: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    change(world)
    code, out, err = trine(monkeypatch, capsys, "run", "--world", str(world))
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert complaint in err
    assert str(world) in err


@pytest.mark.usefixtures("_interrupt_as_before")
@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--cluster", "4x4"), "--world: cluster: --cluster beside it"),
        (("--workload", "philly"), "--world: workload: --workload beside it"),
        (("--throughputs", "gavel-simulation"), "--world: throughputs: --throughputs beside it"),
        (("--set", "trace.models=draw"), "--set: trace.models: a setting of jobs that are read or drawn"),
    ],
)
def test_a_world_stands_alone(
    world: Path, words: tuple[str, ...], complaint: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    code, out, err = trine(monkeypatch, capsys, "run", "--world", str(world), *words)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert complaint in err


@pytest.mark.usefixtures("_interrupt_as_before")
def test_the_command_line_runs_and_compares_worlds(
    world: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    code, out, err = trine(monkeypatch, capsys, "run", "--world", str(world), "--policy", "las", "--json")
    assert (code, json.loads(out)["finished"], json.loads(out)["policy"]) == (0, 3, "las")
    assert "note: World of 3 jobs on 12 GPUs on 6 nodes in 3 racks (8 v100, 4 k80); rounds of 120 s, 7 s after" in err
    words = ("compare", "--world", str(world), "--policies", "fifo,srtf", "--workers", "1", "--json")
    code, out, _ = trine(monkeypatch, capsys, *words)
    assert code == 0
    assert {row["policy"] for row in json.loads(out)["runs"]} == {"fifo", "srtf"}
    preset = ("run", "--preset", "quickstart", "--world", str(world), "--json")
    assert json.loads(trine(monkeypatch, capsys, *preset)[1])["jobs"] == 3


def test_what_is_no_directory_is_told(tmp_path: Path) -> None:
    for path, found in ((tmp_path / "none", "no such directory"), (Path(__file__), "found a file")):
        with pytest.raises(InputError, match=found):
            run(Scenario(world=str(path)))


WORK_S = {"N-load0.8-seed1": 66_731_431.02, "T-load0.9-seed2": 68_968_887.52, "TVN-load0.9-seed4": 71_222_740.52}


def test_fixed_worlds(shared_data: Path) -> None:
    folders = sorted((shared_data / "worlds").iterdir())
    assert len(folders) >= 11
    for folder in folders:
        loaded = load_world(str(folder))
        assert (len(loaded.jobs), loaded.cluster.gpu_count, len(loaded.cluster.racks)) == (1500, 288, 9)
        assert len(loaded.traffic.models) == 26
        if folder.name in WORK_S:
            assert sum(job.ideal_s or 0 for job in loaded.jobs) == pytest.approx(WORK_S[folder.name], rel=1e-9)


def test_a_world_of_types_agrees_with_the_prototype(shared_data: Path) -> None:
    """Links hardly matter in world T: mean completion times of SRSF lie within 5 % of the prototype's."""
    folder = shared_data / "worlds" / "T-load0.9-seed1"
    told = json.loads((folder / "prototype_results.json").read_text())["srsf"]["jct"]
    found = run(Scenario(world=str(folder), policy="srsf"), keep_segments=False).summary.jct_mean_s / 3600
    assert found == pytest.approx(told, rel=0.05)
