"""Philly as published: a JSON list of jobs, each with its attempts and the GPUs of every attempt."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from trine.inputs.csv_table import Row
from trine.trace.format import END_FIRST, NEVER_STARTED, Draft, Observed, observed
from trine.trace.json_rows import JsonFormat, JsonRow, first_object, json_rows, objects
from trine.trace.source import FirstLine


class PhillyJson(JsonFormat):
    name = "philly-json"
    title = "Philly, cluster_job_log"
    source = "github.com/msr-fiddle/philly-traces (CC-BY-4.0)"
    units = (
        "local date and time, taken as it stands and counted from the earliest job; run time is the sum of the "
        "attempts, GPUs are those of the first attempt; `vc` is the group; an attempt without times is passed over"
    )
    aliases = ("philly-job-log", "cluster-job-log")
    keys = ("jobid", "submitted_time", "attempts", "vc", "user", "status")
    examples = (
        '[{"status": "Pass", "vc": "vc-a", "jobid": "application_1", "user": "ann", '
        '"submitted_time": "2017-10-08 10:00:00", "attempts": ['
        '{"start_time": "2017-10-08 10:00:30", "end_time": "2017-10-08 10:02:00", '
        '"detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}]}, '
        '{"start_time": "2017-10-08 10:02:10", "end_time": "2017-10-08 12:02:10", '
        '"detail": [{"ip": "m4", "gpus": ["gpu0"]}, {"ip": "m5", "gpus": ["gpu7"]}]}]},\n'
        '{"status": "Killed", "vc": "vc-b", "jobid": "application_2", "user": "bob", '
        '"submitted_time": "2017-10-08 09:59:00", "attempts": []},\n'
        '{"status": "Failed", "vc": "vc-b", "jobid": "application_3", "user": "bob", '
        '"submitted_time": "2017-10-08 11:00:00", "attempts": ['
        '{"start_time": "2017-10-08 11:00:10", "end_time": "None", "detail": [{"ip": "m2", "gpus": ["gpu0"]}]}]}]\n',
    )
    absolute_clock = True

    def found(self, sample: FirstLine) -> Collection[str]:
        return first_object(sample.whole)

    def rows(self, sample: FirstLine) -> Iterator[Row]:
        return json_rows(sample.source, sample.whole)

    def draft(self, row: Row) -> Draft:
        assert isinstance(row, JsonRow)
        row.required(*self.keys)
        attempts = row.objects("attempts")
        run = _run(row, attempts)
        return Draft(
            id=row.text("jobid"),
            submit_s=row.timestamp("submitted_time"),
            # A job without attempts is skipped for that; it must not count as one that asked for no GPU.
            gpus=_gpus(row, attempts[0]) if attempts else 1.0,
            duration_s=run.duration_s,
            user=row.text("user"),
            group=row.text("vc"),
            skip=run.skip,
        )


def _run(row: JsonRow, attempts: list[Mapping[str, Any]]) -> Observed:
    """The seconds of all attempts; those between them are waits, which a simulation makes its own."""
    seconds, last = 0.0, Observed(NEVER_STARTED)
    for attempt in attempts:
        times = JsonRow(row.source, row.line, row.number_in_file, attempt)
        run = observed(times.timestamp_or_none("start_time"), times.timestamp_or_none("end_time"))
        if run.skip == END_FIRST:
            return run
        seconds += run.duration_s or 0.0
        # An attempt without a start is a gap in the log; the last one without an end still runs.
        last = last if run.skip == NEVER_STARTED else run
    return Observed(duration_s=seconds) if not last.skip else last


def _gpus(row: JsonRow, attempt: Mapping[str, Any]) -> float:
    servers = objects(row, attempt.get("detail"), "detail")
    return float(sum(len(_names(server.get("gpus"))) for server in servers))


def _names(value: Any) -> list[Any]:
    """The GPUs of a server; anything but a list is none."""
    return value if isinstance(value, list) else []
