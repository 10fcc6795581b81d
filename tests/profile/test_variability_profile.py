from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.profile.virtual import flagged
from trine.core.cluster import Cluster, Node
from trine.core.errors import InputError
from trine.profile.measurements import MeasurementRecord, read_records
from trine.profile.profile_json import load_profile, profile_text, save_profile
from trine.profile.profile_matching import load_any, table_for
from trine.profile.variability_profile import VariabilityProfile, build_profile


def runs(gpu: str, times: Iterable[float], app_class: str = "A", node: str = "") -> list[MeasurementRecord]:
    return [MeasurementRecord(gpu, app_class, t, i, 1000.0 + i, node) for i, t in enumerate(times)]


def fleet(count: int = 20, app_class: str = "A", seed: int = 1) -> list[MeasurementRecord]:
    """GPUs that differ by about 1 %, five runs each."""
    rng = random.Random(seed)
    base = [rng.gauss(1.0, 0.01) for _ in range(count)]
    return [r for i, b in enumerate(base) for r in runs(str(i), [b * rng.gauss(1, 0.003) for _ in range(5)], app_class)]


def flags(profile: VariabilityProfile, gpu: str) -> tuple[str, ...]:
    return next(g for g in profile.gpus if g.name == gpu).classes["A"].flags


def test_median_gpu_is_one_and_slowdowns_are_ratios() -> None:
    profile = build_profile(runs("0", [1, 1, 1]) + runs("1", [2, 2, 2]) + runs("2", [3, 3, 3]))
    assert [g.classes["A"].slowdown for g in profile.gpus] == [0.5, 1.0, 1.5]


def test_the_unit_of_a_file_does_not_matter() -> None:
    records = fleet()
    in_ms = [MeasurementRecord(r.gpu, r.app_class, r.perf_s * 1000, r.run, r.at_s) for r in records]
    ours, theirs = build_profile(records), build_profile(in_ms)
    for a, b in zip(ours.gpus, theirs.gpus, strict=True):
        assert a.classes["A"].slowdown == pytest.approx(b.classes["A"].slowdown, rel=1e-12)


def test_a_single_slow_run_is_noise_not_a_slow_gpu() -> None:
    profile = build_profile(fleet() + runs("20", [1.0, 1.01, 3.6, 1.0]))
    assert flags(profile, "20") == ("noisy",)
    assert profile.gpus[20].classes["A"].slowdown == pytest.approx(1.0, abs=0.03)


def test_a_gpu_that_is_always_slow_is_flagged() -> None:
    profile = build_profile(fleet() + runs("20", [2.0, 2.02, 1.98]))
    assert flagged(profile, "slow") == ("20",)
    assert profile.gpus[20].classes["A"].slowdown == pytest.approx(2.0, abs=0.05)


def test_half_of_the_runs_slow_is_not_consistent() -> None:
    assert flags(build_profile(fleet() + runs("20", [1.0, 1.0, 2.0, 2.0])), "20") == ("noisy",)


@pytest.mark.parametrize("times", [[2.0], [2.0, 2.0]])
def test_too_few_runs_are_said_and_never_called_slow(times: list[float]) -> None:
    profile = build_profile(fleet() + runs("20", times))
    assert flags(profile, "20") == ("few",)


def test_one_measurement_in_all_works_with_a_caution() -> None:
    profile = build_profile(runs("0", [3.0]))
    slowdown = profile.gpus[0].classes["A"]
    assert (slowdown.slowdown, slowdown.runs, slowdown.spread) == (1.0, 1, None)
    assert any("only one GPU" in note for note in profile.notes)
    assert any("measured once only" in note for note in profile.notes)


def test_no_measurement_is_refused() -> None:
    with pytest.raises(InputError, match="no records"):
        build_profile([])


def test_files_in_different_units_become_one_class() -> None:
    seconds = fleet(10)
    in_ms = [MeasurementRecord(f"ms{r.gpu}", "A", r.perf_s * 1000, r.run, r.at_s) for r in fleet(10, seed=2)]
    profile = build_profile(seconds + in_ms)
    assert all(0.9 < g.classes["A"].slowdown < 1.1 for g in profile.gpus)
    assert any("divided by 1,000" in note for note in profile.notes)


def test_the_order_of_records_does_not_matter() -> None:
    records = fleet() + fleet(app_class="B", seed=3)
    shuffled = random.Random(5).sample(records, len(records))
    assert profile_text(build_profile(records)) == profile_text(build_profile(shuffled))


def test_the_same_file_twice_counts_once() -> None:
    profile = build_profile(fleet() + fleet())
    assert profile.gpus == build_profile(fleet()).gpus
    assert any("found twice" in note for note in profile.notes)


def test_ways_differ_as_documented() -> None:
    records = fleet() + runs("20", [1.0, 1.0, 1.0, 1.0, 3.0])
    drawn = {build_profile(records, "record", seed).gpus[20].classes["A"].slowdown > 2 for seed in range(30)}
    assert drawn == {True, False}
    as_is = build_profile(runs("0", [1.2]) + runs("1", [1.4]), "column")
    assert [g.classes["A"].slowdown for g in as_is.gpus] == [1.2, 1.4]
    with pytest.raises(InputError, match="did you mean 'gpu_median'"):
        build_profile(records, "gpu_mean")


def test_gpus_named_differently_are_matched_by_place() -> None:
    a = [MeasurementRecord("GPU-77", "A", 1.0, 0, None, "c1-4", "c1-4-0")]
    b = [MeasurementRecord("c1-4-0", "B", 1.0, 0, None, "c1-4", "c1-4-0")]
    profile = build_profile(a + b)
    assert [(g.name, sorted(g.classes)) for g in profile.gpus] == [("c1-4-0", ["A", "B"])]


def test_file_round_trip_is_exact_and_bytes_repeat(tmp_path: Path) -> None:
    profile = build_profile(fleet() + runs("20", [2.0, 2.0, 2.0]), sources=["a.csv"])
    for name in ("a.json", "b.json"):
        save_profile(profile, tmp_path / name)
    assert load_profile(tmp_path / "a.json") == profile
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('"version": 1', '"version": 2', "version: version 2; expected version 1"),
        ('"how"', '"hwo"', "unknown key 'hwo' (did you mean 'how'?)"),
        ('"runs": 3', '"run": 3', "gpus[0].classes.A.runs: found nothing"),
        ('"runs": 3', '"runs": 0', "gpus[0].classes.A.runs: found 0"),
        ('"slowdown": 1.0', '"slowdown": NaN', "gpus[0].classes.A.slowdown: found NaN"),
        ('"slowdown": 1.0', '"slowdown": -1', "slowdown: found -1; expected a finite number greater than 0"),
        ('"slowdown": 1.0', '"slowdown": 0', "slowdown: found 0"),
        ('"slowdown": 1.0', '"slowdown": "x"', 'slowdown: found "x"'),
        ('"flags": []', '"flags": ["slwo"]', "unknown flag 'slwo' (did you mean 'slow'?)"),
        ('{"A": {"slowdown"', '{"Z": {"slowdown"', "unknown class 'Z'"),
        ('"gpu": "g1"', '"gpu": "g0"', "GPU 'g0' found twice"),
        ('"gpus": [', '"gpus": [[],', "gpus[0]: found []"),
        ('"format"', '"format', "not valid JSON"),
        ('"trine-variability-profile"', '"other"', "format: found"),
    ],
)
def test_damaged_files_get_one_sentence(tmp_path: Path, old: str, new: str, sentence: str) -> None:
    path = tmp_path / "p.json"
    text = profile_text(build_profile(runs("g0", [1, 1, 1]) + runs("g1", [1, 1, 1])))
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(InputError) as error:
        load_profile(path)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["{}", "[]", "", "{", "[" * 100_000, '{"gpus": 3}'])
def test_other_files_are_no_profile(tmp_path: Path, text: str) -> None:
    path = tmp_path / "p.json"
    path.write_text(text)
    with pytest.raises(InputError):
        load_profile(path)


def test_table_by_id_fills_what_is_missing() -> None:
    table, notes = table_for(build_profile(runs("0", [1, 1, 1]) + runs("3", [2, 2, 2])), Cluster.uniform(2, 2))
    values = table.slowdown("A")
    assert values[1] == values[2] == 1.0
    assert values[3] == pytest.approx(2 * values[0])
    assert notes == ["class A: 2 of 4 GPUs (1, 2) are not measured, taken as median (1.0)"]


def test_table_by_node_name() -> None:
    cluster = Cluster((Node("left", 2), Node("right", 2)))
    records = runs("right:1", [3, 3, 3]) + runs("left:0", [1, 1, 1]) + runs("gone:0", [1, 1, 1])
    table, notes = table_for(build_profile(records), cluster)
    assert table.slowdown("A") == [1.0, 1.0, 1.0, 3.0]
    assert any("1 GPUs of the profile are on other nodes" in note for note in notes)
    assert any("2 of 4 GPUs (1, 2)" in note for note in notes)


def test_table_by_uuid_within_named_nodes() -> None:
    cluster = Cluster((Node("left", 1), Node("right", 2)))
    records = runs("GPU-c", [3], node="right") + runs("GPU-a", [2], node="left") + runs("GPU-b", [1], node="right")
    assert table_for(build_profile(records), cluster)[0].slowdown("A") == [1.0, 0.5, 1.5]


def test_table_by_order_is_said() -> None:
    table, notes = table_for(build_profile(runs("cpu10", [3]) + runs("cpu2", [1])), Cluster.uniform(1, 2))
    assert table.slowdown("A") == [0.5, 1.5]
    assert "matched by order" in notes[0]


@pytest.mark.parametrize(
    ("records", "sentence"),
    [
        (runs("7", [1]), "GPU 7; expected ids from 0 to 3"),
        (runs("1", [1], node="elsewhere"), "GPU 1 on node 'elsewhere'; expected node '0'"),
        (runs("GPU-a", [1]) + runs("GPU-b", [1]), "2 GPUs with names that the cluster does not know"),
        (runs("node0:5", [1]), "GPU number 5 on node 'node0'"),
        (runs("GPU-a", [1], node="node1"), "1 GPUs on node 'node1'; expected 2"),
        ([r for i in range(4) for r in runs(f"x{i}", [1], node="host")], "nodes of 4 GPUs; expected nodes of 2, 2"),
    ],
)
def test_a_profile_of_other_gpus_is_refused(records: list[MeasurementRecord], sentence: str) -> None:
    with pytest.raises(InputError) as error:
        table_for(build_profile(records), Cluster.uniform(2, 2))
    assert sentence in str(error.value)


def test_a_class_without_profile_gets_the_most_sensitive_one() -> None:
    records = runs("0", [1]) + runs("1", [3]) + runs("0", [1], "B") + runs("1", [1], "B")
    table, notes = table_for(build_profile(records), Cluster.uniform(1, 2), classes=("A", "C"))
    assert table.slowdown("C") == table.slowdown("A") == [0.5, 1.5]
    assert any("class C has no profile" in note for note in notes)


def test_load_any_reads_profiles_and_tables(tmp_path: Path) -> None:
    cluster = Cluster.uniform(1, 2)
    save_profile(build_profile(runs("0", [1]) + runs("1", [3])), tmp_path / "p.json")
    (tmp_path / "t.csv").write_text("gpu,node,slowdown_A\n0,0,0.5\n1,0,1.5\n")
    for name in ("p.json", "t.csv"):
        assert load_any(tmp_path / name, cluster)[0].slowdown("A") == [0.5, 1.5]
    with pytest.raises(InputError, match=r"p\.json: gpu: found GPU 1"):
        load_any(tmp_path / "p.json", Cluster.uniform(1, 1))


def test_public_measurements_have_noisy_but_no_very_slow_gpus(shared_data: Path) -> None:
    path = shared_data / "hardware/pal_gpu_variability/longhorn/resnet-longhorn-agg.csv.gz"
    records = read_records(path, "A").records
    profile = build_profile(records)
    slowdowns = {g.name: g.classes["A"].slowdown for g in profile.gpus}
    assert max(slowdowns.values()) == pytest.approx(1.123, abs=0.001)
    reference_s = profile.classes["A"].reference_s
    one_off = {r.gpu for r in records if r.perf_s / reference_s > 1.5}
    assert one_off <= set(flagged(profile, "noisy"))
    assert not one_off & set(flagged(profile, "slow"))
    twice = [MeasurementRecord("bad", "A", 2 * reference_s, i) for i in range(4)]
    assert "bad" in flagged(build_profile([*records, *twice]), "slow")


# -- published files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "reference_s"),
    [
        ("frontera/frontera-resnet-agg.csv", 0.1356),
        ("frontera/frontera-pagerank-agg.csv", 2.587),
        ("longhorn/pagerank-longhorn-agg.csv.gz", 66.05),
    ],
)
def test_a_column_without_a_unit_is_read_in_a_plausible_one(shared_data: Path, path: str, reference_s: float) -> None:
    records = read_records(shared_data / "hardware/pal_gpu_variability" / path, "A").records
    assert build_profile(records).classes["A"].reference_s == pytest.approx(reference_s, rel=1e-3)


def test_gpus_measured_once_like_all_others_can_be_slow(shared_data: Path) -> None:
    """LS6: one summary per GPU, six of 219 at 2.2 times the median."""
    records = read_records(shared_data / "hardware/pal_gpu_variability/ls6/resnet-ls6-agg.csv", "A").records
    found = [gpu.classes["A"] for gpu in build_profile(records).gpus]
    worst = [one for one in found if one.slowdown > 2]
    assert len(worst) == 6
    assert {one.flags for one in worst} == {("slow", "few")}
