"""Whatever happens to a trace file, reading it gives jobs or one clear sentence, never anything else."""

from __future__ import annotations

import gzip
import math
from collections.abc import Callable
from pathlib import Path
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trine.core.errors import InputError
from trine.trace import ImportOptions, inspect, load
from trine.trace.formats import known

VALUES = ["", " ", "-1", "-0", "0", "nan", "inf", "-inf", "1e308", "1e-308", "1e400", "1_0", "x", '"', "é", "٣", "1,2"]
VALUES += ["2017-02-30 00:00:00", "0001-01-01T00:00:00+14:00", "9999-12-31 23:59:59-12:00", "-", "--", "5-", "|", "{"]


def flip(data: bytes, rng: Random) -> bytes:
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        out[rng.randrange(len(out))] = rng.randrange(256)
    return bytes(out)


def cut(data: bytes, rng: Random) -> bytes:
    return data[: rng.randrange(len(data))]


def cut_packed(data: bytes, rng: Random) -> bytes:
    return cut(gzip.compress(data), rng)


def flip_packed(data: bytes, rng: Random) -> bytes:
    return flip(gzip.compress(data), rng)


def drop_column(data: bytes, rng: Random) -> bytes:
    rows = [line.split(_separator(data)) for line in data.splitlines()]
    column = rng.randrange(len(rows[0]))
    return b"\n".join(_separator(data).join(c for i, c in enumerate(row) if i != column) for row in rows)


def replace_value(data: bytes, rng: Random) -> bytes:
    rows = [line.split(_separator(data)) for line in data.splitlines()]
    for _ in range(rng.randint(1, 3)):
        row = rng.choice(rows)
        row[rng.randrange(len(row))] = rng.choice(VALUES).encode()
    return b"\n".join(_separator(data).join(row) for row in rows)


def shuffle_lines(data: bytes, rng: Random) -> bytes:
    lines = data.splitlines(keepends=True)
    return b"".join(rng.choices(lines, k=len(lines) + 1))


def _separator(data: bytes) -> bytes:
    return b"\t" if b"\t" in data.splitlines()[0] else b","


DAMAGE: list[Callable[[bytes, Random], bytes]] = [
    *(flip, cut, cut_packed, flip_packed, drop_column, replace_value, replace_value, shuffle_lines)
]
EXAMPLES = [(f.name, text.encode()) for f in known().values() for text in f.examples]


@settings(deadline=None, max_examples=600, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    example=st.sampled_from(EXAMPLES),
    damages=st.lists(st.sampled_from(DAMAGE), min_size=1, max_size=2),
    seed=st.integers(0, 1 << 32),
    forced=st.booleans(),
    duration_s=st.sampled_from([None, 60.0]),
)
def test_damage_gives_jobs_or_a_sentence(
    tmp_path: Path,
    example: tuple[str, bytes],
    damages: list[Callable[[bytes, Random], bytes]],
    seed: int,
    forced: bool,
    duration_s: float | None,
) -> None:
    (name, data), rng = example, Random(seed)
    for damage in damages:
        data = damage(data, rng) if data.strip() else data
    path = tmp_path / "trace"
    path.write_bytes(data)
    try:
        inspect(path, name if forced else None)
        jobs = load(path, name if forced else None, ImportOptions(duration_s=duration_s)).jobs
    except InputError as error:
        assert str(path) in error.where and "\n" not in error.where
        return
    assert jobs
    for job in jobs:
        assert 1 <= job.gpus <= 1_000_000 and 0 <= job.submit_s < math.inf
        assert 0 < job.steps < math.inf and (job.ideal_s is None or 0 < job.ideal_s < math.inf)
        assert job.deadline_s is None or math.isfinite(job.deadline_s)
