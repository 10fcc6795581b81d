import json
import re
from pathlib import Path

import pytest

from trine.cli.main import main
from trine.core.errors import InputError
from trine.core.prices import Prices
from trine.planning.capacity import Candidate, NodeType, Search, Target, parse_types
from trine.planning.capacity_page import write_capacity_page
from trine.sim.scenario import Scenario, run

TRACE = "job_id,submit_s,gpus,duration_s\n" + "".join(f"{i},{i * 60},{1 + i % 2},600\n" for i in range(60))


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "jobs.csv"
    path.write_text(TRACE)
    return str(path)


def test_the_fewest_nodes_that_meet_the_target_are_found(trace: str) -> None:
    scenario = Scenario(cluster="gpu=1x2", policy="fifo", trace=trace)
    search = Search(scenario, Target.parse("wait_p95=10m"), [NodeType.parse("gpu=2", Prices())])
    best = search.cheapest()
    assert best is not None and best.value_s <= 600
    fewer = run(Scenario(cluster=f"gpu={best.nodes[0] - 1}x2", policy="fifo", trace=trace), keep_segments=False)
    assert fewer.summary.wait_p95_s > 600
    assert best.price_per_h == 2 * best.nodes[0]


def test_of_equal_types_the_cheaper_is_taken_and_large_jobs_must_fit(trace: str) -> None:
    prices = Prices.constant({"dear": 3.0, "cheap": 1.0, "tiny": 0.1})
    scenario = Scenario(cluster="dear=1x2", policy="fifo", trace=trace)
    types = [NodeType.parse(text, prices) for text in ("dear=2", "cheap=2")]
    best = Search(scenario, Target.parse("wait_p95=600s"), types).cheapest()
    assert best is not None and best.nodes[0] == 0
    # One node of one GPU can never hold a job of two; two of them can.
    search = Search(scenario, Target.parse("wait_p95=600s"), [NodeType.parse("tiny=1", prices)])
    assert search._try((1,)).value_s == float("inf")


def test_no_cluster_is_simulated_that_is_smaller_than_the_largest_job(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(TRACE + "60,60,24,600\n")
    scenario = Scenario(cluster="dear=1x2", policy="fifo", trace=str(tmp_path / "jobs.csv"))
    types = [NodeType.parse(text, Prices()) for text in ("dear=4", "cheap=2")]
    search = Search(scenario, Target.parse("jct_mean=2h"), types)
    best = search.cheapest()
    assert best is not None
    assert all(max(nodes[0] * 4, nodes[1] * 2) >= 24 for nodes in search.tried), search.tried
    assert best.price_per_h == 24


@pytest.mark.parametrize(
    "wrong", [["v100=\u00b2"], ["v100=0"], ["v100=-1"], ["=8"], [""], ["a,b=8"], ["v100=245"], ["v100=8", "v100=4"]]
)
def test_wrong_nodes_are_one_sentence_before_anything_is_simulated(wrong: list[str]) -> None:
    with pytest.raises(InputError, match="--nodes"):
        parse_types(wrong, Prices())


@pytest.mark.parametrize("wrong", ["wait_p95", "wait_p59=1h", "wait_p95=soon"])
def test_a_wrong_target_is_one_sentence(wrong: str) -> None:
    with pytest.raises(InputError, match="--target"):
        Target.parse(wrong)


def test_the_command_prints_the_cluster_and_writes_a_plot(
    trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["plan", "--trace", trace, "--policy", "fifo", "--target", "wait_p95=1h", "--nodes", "gpu=4"]
    monkeypatch.setattr("sys.argv", ["trine", *words, "--out", str(tmp_path / "out"), "--json"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    found = json.loads(capsys.readouterr().out)
    assert found["best"]["meets"] and found["best"]["cluster"].startswith("gpu=")
    assert "Capacity plan" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize(("largest", "least"), [(1, False), (60, True)])
def test_it_is_said_that_a_large_job_and_not_the_target_needs_so_many(
    largest: int, least: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(TRACE + f"60,60,{largest},600\n")
    words = ["--trace", str(path), "--policy", "fifo", "--target", "wait_p95=10h", "--nodes", "gpu=4"]
    monkeypatch.setattr("sys.argv", ["trine", "plan", *words])
    with pytest.raises(SystemExit):
        main()
    said = re.search(r"simulated(.*)\.", capsys.readouterr().out)
    assert said is not None
    assert said.group(1) == ("; the largest job needs as many: 60 GPUs" if least else "")


@pytest.mark.parametrize(("value_s", "wide"), [(400_000.0, True), (5_000.0, False), (0.0, False)])
def test_clusters_near_the_target_can_be_told_apart_beside_one_that_is_far_too_small(
    value_s: float, wide: bool, tmp_path: Path
) -> None:
    search = Search(Scenario(cluster="gpu=1x2"), Target("wait_p95", 3600.0), [NodeType("gpu", 2, 2.0)])
    for nodes, waits_s in ((1, value_s), (2, 4_000.0), (3, 3_500.0)):
        search.tried[nodes,] = Candidate((nodes,), 2.0 * nodes, waits_s, waits_s <= 3600.0)
    write_capacity_page(search, search.tried[3,], tmp_path / "out", "GPUs")
    assert ("wait_p95 (log scale)" in (tmp_path / "out" / "report.html").read_text()) is wide


@pytest.mark.parametrize(("more", "cause"), [([], True), (["--set", "event_driven=true"], False)])
def test_a_target_that_no_capacity_meets_ends_the_search_where_more_nodes_change_nothing(
    more: list[str],
    cause: bool,
    trace: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = "wait_p95=1m" if cause else "jct_p95=9m"
    words = ["plan", "--trace", trace, "--policy", "fifo", "--target", target, "--nodes", "gpu=2", *more]
    monkeypatch.setattr("sys.argv", ["trine", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr()
    assert ended.value.code == 1 and "and twice as many nodes change nothing" in said.out
    assert ("every 300 s" in said.out) is cause, "a round longer than the target is the reason"
    tried = [int(nodes) for nodes in re.findall(r"^gpu=(\d+)x2: ", said.err, re.MULTILINE)]
    assert max(tried) <= 64, "60 jobs of at most two GPUs never need more than 60 nodes"


def test_a_job_that_no_number_of_nodes_could_run_is_named_before_anything_is_simulated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jobs.csv").write_text(f"{TRACE}60,9000,40000,600\n")
    words = ["plan", "--trace", str(tmp_path / "jobs.csv"), "--policy", "fifo", "--target", "wait_p95=1h"]
    monkeypatch.setattr("sys.argv", ["trine", *words, "--nodes", "gpu=2", "--nodes", "other=4"])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr()
    assert ended.value.code == 2 and said.out == ""
    (sentence,) = said.err.splitlines()
    assert "job 60 can never run: on 4,096 nodes of gpu=2 it asks for 40000 GPUs" in sentence


HISTORY = "id,user,queue,state,gpus,submitted_s,held_s,lost_s\n" + "".join(
    f"{i},ann,default,done,2,{1893456000 + 300 * i},{1900 if i else 0},{100 if i else 0}\n" for i in range(30)
)


def test_the_history_of_a_daemon_is_planned_for_as_a_trace_of_the_same_jobs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "history.csv").write_text(HISTORY)
    rows = "".join(f"{i},{300 * i},2,1800\n" for i in range(1, 30))
    (tmp_path / "trace.csv").write_text(f"job_id,submit_s,gpus,duration_s\n{rows}")
    found = []
    as_a_daemon = ["--set", "round_s=60", "--set", "fill=true"]
    for option, name, more in (("--history", "history.csv", []), ("--trace", "trace.csv", as_a_daemon)):
        words = ["plan", option, str(tmp_path / name), *more, "--policy", "fifo", "--target", "wait_p95=1s", "--json"]
        monkeypatch.setattr("sys.argv", ["trine", *words, "--nodes", "gpu=2"])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code
        found.append(json.loads(capsys.readouterr().out)["best"])
    assert found[0] == found[1] and found[0]["meets"]


def test_history_and_trace_are_not_both_taken(
    trace: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["plan", "--history", trace, "--trace", trace, "--target", "wait_p95=1m", "--nodes", "gpu=2"]
    monkeypatch.setattr("sys.argv", ["trine", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2 and "one of --trace, --workload, --history and --state" in capsys.readouterr().err
