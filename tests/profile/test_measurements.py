from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from trine.core.errors import InputError
from trine.profile.gpu_session import RecordsJournal
from trine.profile.measurements import COLUMNS, MeasurementRecord, name_order, read_records


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "runs.csv"
    path.write_text(text)
    return path


def test_own_file_round_trips_exactly(tmp_path: Path) -> None:
    records = [
        MeasurementRecord("gpu0", "A", 0.1 + 0.2, 0, 1700000000.5, "n0", "rack-n0-0"),
        MeasurementRecord('odd, "name"', "B", 1e-7, 3),
    ]
    path = write(tmp_path, ",".join(COLUMNS) + "\n")
    for record in records:
        RecordsJournal(path).append(record)
    (tmp_path / "runs.csv.gz").write_bytes(gzip.compress(path.read_bytes()))
    for name in ("runs.csv", "runs.csv.gz"):
        assert list(read_records(tmp_path / name).records) == [
            MeasurementRecord(r.gpu, r.app_class, r.perf_s, r.run, r.at_s, r.node, r.place) for r in records
        ]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["runs.csv", "runs.csv.gz"]


def test_units_follow_the_column(tmp_path: Path) -> None:
    for column, seconds in (("perf_s", 250.0), ("perf_ms", 0.25), ("perf", 0.25)):
        found = read_records(write(tmp_path, f"uuid,{column}\ng0,250\n"), "A")
        assert found.records[0].perf_s == pytest.approx(seconds)


def test_seconds_win_over_milliseconds(tmp_path: Path) -> None:
    assert read_records(write(tmp_path, "uuid,perf,perf_s\ng0,250,0.25\n"), "A").records[0].perf_s == 0.25


def test_duplicate_rows_count_once_and_are_reported(tmp_path: Path) -> None:
    found = read_records(write(tmp_path, ",uuid,ts,perf\n0,g0,5,100\n1,g0,5,100\n2,g0,6,100\n"), "A")
    assert (len(found.records), found.duplicates) == (2, 1)
    assert "1 duplicate rows dropped" in found.notes[0]


def test_equal_rows_that_nothing_tells_apart_are_repeats(tmp_path: Path) -> None:
    found = read_records(write(tmp_path, "gpu,perf_s\ng0,1.0\ng0,1.0\ng0,1.0\ng0,3.0\n"), "A")
    assert [r.run for r in found.records] == [0, 1, 2, 3]


def test_mixed_units_within_a_file_are_repaired_and_reported(tmp_path: Path) -> None:
    rows = "".join(f"g{i},{t}\n" for i, t in enumerate((100, 101, 0.099, 98, 0.102)))
    found = read_records(write(tmp_path, "gpu,perf\n" + rows), "A")
    times = [r.perf_s for r in found.records]
    assert max(times) / min(times) < 1.1
    assert found.rescaled == 3
    assert "divided by 1,000" in found.notes[0]


def test_two_groups_that_are_no_unit_apart_are_refused(tmp_path: Path) -> None:
    rows = "".join(f"g{i},{t}\n" for i, t in enumerate((100, 101, 10100, 10200)))
    with pytest.raises(InputError, match=r"runs\.csv:4: perf_s: .*factor 101 apart \(GPU g2 .*one unit"):
        read_records(write(tmp_path, "gpu,perf\n" + rows), "A")


def test_a_run_that_hung_is_kept_as_a_slow_run(tmp_path: Path) -> None:
    rows = "".join(f"g{i % 5},{100 + i}\n" for i in range(40)) + "g0,9000\n"
    found = read_records(write(tmp_path, "gpu,perf\n" + rows), "A")
    assert max(r.perf_s for r in found.records) == 9.0
    assert "1 runs took" in found.notes[0]


def test_a_time_beyond_any_hang_is_refused(tmp_path: Path) -> None:
    rows = "".join(f"g{i % 5},{100 + i}\n" for i in range(40)) + "g0,1e300\n"
    with pytest.raises(InputError, match=r"runs\.csv:42: perf_s"):
        read_records(write(tmp_path, "gpu,perf\n" + rows), "A")


def test_odd_names_are_names(tmp_path: Path) -> None:
    found = read_records(write(tmp_path, "gpu,cabinet,node,device,perf\ng²,c1,004,0,5\n٣,c1,²,1,5\n"), "A")
    assert [r.node for r in found.records] == ["c1-4", "c1-²"]
    assert len(sorted((r.gpu for r in found.records), key=name_order)) == 2


@pytest.mark.parametrize("value", ["nan", "inf", "0", "-1", "fast", ""])
def test_impossible_times_name_line_and_column(tmp_path: Path, value: str) -> None:
    with pytest.raises(InputError, match=r"runs\.csv:3: perf_s: found .*greater than 0"):
        read_records(write(tmp_path, f"gpu,perf_s,at_s\ng0,1,1\ng1,{value},2\n"), "A")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "the file is empty"),
        ("gpu,perf_s\n", "no measurements"),
        ("card,perf_s\ng0,1\n", "gpu: no such column"),
        ("gpu,time\ng0,1\n", "perf_s: no such column"),
        ("gpu,perf_s\ng0,1,2\n", ":2: 3 columns; expected 2 columns"),
        ("gpu,perf_s\n,1\n", ":2: gpu: found nothing"),
        ("gpu,perf_s,run\ng0,1,x\n", ":2: run: found 'x'"),
        ("gpu,perf_s,at_s\ng0,1,later\n", ":2: at_s: found 'later'"),
    ],
)
def test_bad_files_get_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(InputError) as error:
        read_records(write(tmp_path, text), "A")
    assert sentence in str(error.value)


def test_the_class_comes_from_the_caller_or_the_column(tmp_path: Path) -> None:
    path = write(tmp_path, "gpu,class,perf_s\ng0,A,1\ng0,B,2\n")
    assert [r.app_class for r in read_records(path).records] == ["A", "B"]
    with pytest.raises(InputError, match="holds the classes A, B; expected one class"):
        read_records(path, "C")
    with pytest.raises(InputError, match="class: found nothing"):
        read_records(write(tmp_path, "gpu,perf_s\ng0,1\n"))


def test_a_record_in_memory_is_checked_too() -> None:
    with pytest.raises(InputError, match="GPU g0, run 2: perf_s: found nan"):
        MeasurementRecord("g0", "A", float("nan"), 2)


def test_names_sort_as_people_count() -> None:
    assert sorted(["gpu10", "gpu9", "c2-10-1", "c2-9-3"], key=name_order) == ["c2-9-3", "c2-10-1", "gpu9", "gpu10"]


@pytest.mark.parametrize(
    ("name", "records", "gpus", "duplicates"),
    [("resnet", 1404, 336, 0), ("bert", 1096, 136, 0), ("pagerank", 880, 172, 0), ("sgemm", 8803, 392, 2284)],
)
def test_public_measurements(shared_data: Path, name: str, records: int, gpus: int, duplicates: int) -> None:
    path = shared_data / f"hardware/pal_gpu_variability/longhorn/{name}-longhorn-agg.csv.gz"
    found = read_records(path, "A")
    assert (len(found.records), len({r.gpu for r in found.records})) == (records, gpus)
    assert (found.duplicates, found.rescaled) == (duplicates, 0)


def test_a_cut_off_gzip_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv.gz"
    path.write_bytes(gzip.compress(b"gpu,perf_s\n" + b"g0,1\n" * 1000)[:-20])
    with pytest.raises(InputError, match="damaged or cut off"):
        read_records(path, "A")
