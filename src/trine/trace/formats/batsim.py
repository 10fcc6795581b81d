"""Batsim workloads: jobs that name profiles, of which those with a fixed time can be simulated without a platform."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from trine.core.errors import InputError, shown, unknown_name
from trine.inputs.csv_table import Row
from trine.trace.format import Draft
from trine.trace.json_rows import JsonFormat, JsonRow, json_rows, member, member_names
from trine.trace.source import FirstLine

DELAYS, SEQUENCES = ("delay", "DelayProfile"), ("composed", "SequentialCompositionProfile")
"""Names of the profile types up to and from version 5."""
PLATFORM_TIME = "platform-time"
_DEEPEST = 20


class BatsimRow(JsonRow):
    """A job with the profiles of its file."""

    __slots__ = ("profiles",)

    def __init__(self, row: JsonRow, profiles: Mapping[str, Any]) -> None:
        super().__init__(row.source, row.line, row.number_in_file, row.value)
        self.profiles = profiles


class Batsim(JsonFormat):
    name = "batsim"
    title = "Batsim workload"
    source = "github.com/oar-team/batsim, docs/input-workload.rst"
    units = (
        "seconds; `res` is the number of GPUs; run time is that of the profile (a delay, or a sequence of delays), but "
        "at most `walltime`; profiles of computation and communication need a platform and are skipped; the profile's "
        "name is the model"
    )
    keys = ("jobs", "profiles")
    examples = (
        '{"nb_res": 4, "jobs": [\n'
        '{"id": "a", "subtime": 0, "walltime": 100, "res": 1, "profile": "ten"},\n'
        '{"id": 2, "subtime": 3.5, "res": 4, "profile": "twice"},\n'
        '{"id": "cut", "subtime": 6, "walltime": 4, "res": 2, "profile": "ten"},\n'
        '{"id": "flops", "subtime": 9, "res": 2, "profile": "compute"}],\n'
        '"profiles": {"ten": {"type": "delay", "delay": 10}, "twice": {"type": "composed", "repeat": 2, '
        '"seq": ["ten", "ten"]}, "compute": {"type": "parallel_homogeneous", "cpu": 1e9, "com": 0}}}\n',
    )
    rules = {PLATFORM_TIME: "a profile whose time depends on a simulated platform"}

    def found(self, sample: FirstLine) -> Collection[str]:
        return member_names(sample.whole)

    def rows(self, sample: FirstLine) -> Iterator[Row]:
        profiles = member(sample.source, sample.whole, "profiles")
        if not isinstance(profiles, dict):
            raise InputError(sample.source, f"found {shown(profiles)}", "an object of profiles by name", "profiles")
        return (BatsimRow(row, profiles) for row in json_rows(sample.source, sample.whole, "jobs"))

    def draft(self, row: Row) -> Draft:
        assert isinstance(row, BatsimRow)
        row.required("id", "subtime", "res", "profile")
        run_s = _profile_s(row, row.text("profile"), _DEEPEST)
        limit_s = row.number_or_none("walltime", minimum=-1.0)
        return Draft(
            id=row.text("id"),
            submit_s=row.number("subtime"),
            gpus=row.number("res"),
            duration_s=None if run_s is None else min(run_s, math.inf if limit_s in (None, -1.0) else limit_s),
            model=row.text("profile"),
            user=row.text("user") or row.text("user_id"),
            group=row.text("queue"),
            skip=PLATFORM_TIME if run_s is None else "",
        )


def _profile_s(row: BatsimRow, name: str, depth: int) -> float | None:
    """Seconds of a profile; ``None`` if only a platform can tell."""
    profile = row.profiles.get(name)
    if not isinstance(profile, dict):
        raise unknown_name(row.where, "profile", name, row.profiles, "profile")
    fields = JsonRow(row.source, row.line, row.number_in_file, profile)
    if fields.text("type") in DELAYS:
        fields.required("delay")
        return fields.number("delay")
    if fields.text("type") not in SEQUENCES:
        return None
    if depth == 0:
        raise InputError(row.where, f"{name!r}, a sequence that contains itself", "sequences that end", "profile")
    once_s, repeat = _sum(_profile_s(row, part, depth - 1) for part in _parts(fields)), fields.whole_or_none("repeat")
    return once_s if once_s is None or repeat is None else once_s * repeat


def _parts(fields: JsonRow) -> list[str]:
    found = fields.value.get("seq")
    if not isinstance(found, list):
        raise InputError(fields.where, f"found {shown(found)}", "a list of profiles", "seq")
    return [str(part) for part in found]


def _sum(parts: Iterable[float | None]) -> float | None:
    total = 0.0
    for part in parts:
        if part is None:
            return None
        total += part
    return total
