"""Files that are no traces, or not whole: one clear sentence each."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from trine.core.errors import InputError
from trine.trace import load

GOOD = "job_id,submit_s,gpus,duration_s\na,0,1,60\nb,5,2,60\n"
PACKED = gzip.compress(GOOD.encode(), mtime=0)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "an empty file"),
        (b"\n\n  \n", "an empty file"),
        (gzip.compress(b"", mtime=0), "an empty file"),
        (PACKED[:-9], "the gzip stream ends early"),
        (PACKED[:-8] + b"\0" * 8, "the gzip stream is damaged"),
        (GOOD.encode("utf-16"), "UTF-16"),
        (GOOD.encode() + b"caf\xe9,9,1,60\n", "trace:4: byte 0xe9 is not UTF-8"),
        (b"PK\x03\x04rest", "a zip archive"),
        (b"PAR1....", "a Parquet file"),
        (
            gzip.compress(b"pai_task_table.csv".ljust(257, b"\0") + b"ustar\0" + b"\0" * 300),
            "a tar archive; expected one of",
        ),
        (GOOD.encode() + b"\0\0\0", "trace:4: binary data"),
        (b"\x7fELF\0\0", "binary data"),
        (b"Dear reader,\nthis is a letter.\n", "an unknown layout"),
        (b'{"v100": {}}', "looks like JSON, which --throughputs"),
        (b'{"philly": ["500:0:0"]}', "JSON of an unknown shape; expected a job trace"),
        (b"job_id,submit_s,gpus,duration_s\n", "no rows"),
        (b'job_id,submit_s,gpus,duration_s\n"a,0,1,60\nb,5,2,60\n', "trace:2: a line that cannot be split"),
        (b"duration\n121\n122\n", "a sample of GPU times, which --set sample= takes"),
        (b"sn,cpu_milli,memory_mib,gpu,model\nn0,1,1,2,P100\n", "a list of nodes, which --cluster takes"),
        (b",machineId,number of GPUs\n0,m0,8\n", "a list of machines, which --cluster takes"),
        (b"num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node\n1,4,4,1,1", "a cluster shape"),
        (b"ip,DSW,PSW,ASW\nx,G6,P10,S14\n", "a network topology, which --cluster takes"),
        (b"panel,cluster,x,cdf_percent\njobs,Seren,1,54.04\n", "a cumulative distribution"),
        (b"uuid,perf\ng0,1.0\n", "which --variability takes"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_what_is_no_trace_is_told_in_a_sentence(tmp_path: Path, data: bytes, complaint: str) -> None:
    path = tmp_path / "trace"
    path.write_bytes(data)
    with pytest.raises(InputError) as caught:
        load(path)
    assert complaint in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_a_directory_and_a_bad_name_are_told(tmp_path: Path) -> None:
    for path, complaint in ((tmp_path / "gone.csv", "no such file"), (tmp_path, "a directory"), ("a\0b", "cannot be")):
        with pytest.raises(InputError, match=complaint):
            load(path)


def test_an_almost_known_layout_names_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text("timestamp,duration,num_gpus,cluster\n2017-10-09 07:01:55,66.0,1,11cb48\n")
    with pytest.raises(InputError, match=r"also gpu_time \(closest format: philly\)"):
        load(path)


def test_other_columns_are_ignored_only_when_the_format_is_forced(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text("job_id,num_gpus,submit_time,duration,model,note\n0,1,98,1481.0,vgg19,x\n")
    with pytest.raises(InputError, match=r"no note \(closest format: pal; --format pal ignores"):
        load(path)
    assert len(load(path, "pal").jobs) == 1


@pytest.mark.parametrize(
    ("text", "fmt", "complaint"),
    [
        (GOOD, "philly", "looks like format 'trine'"),
        (GOOD, "gavel", "looks like format 'trine'"),
        ("duration\n1\n", "philly", "looks like a sample of GPU times"),
        ("a\tb\tc\n", "gavel", "3 tab-separated columns; expected 7 or 10 columns"),
        ("job_id,num_gpu,submit_time\n", "pal", "num_gpus: no such column (did you mean 'num_gpu'?)"),
    ],
)
def test_a_wrong_format_is_told(tmp_path: Path, text: str, fmt: str, complaint: str) -> None:
    path = tmp_path / "trace"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        load(path, fmt)
    assert complaint in str(caught.value)
