"""Records of earlier versions: what they meant then is what they mean now, and none keeps the daemon from starting."""

from __future__ import annotations

import json
from typing import Any

from tests.server.site import spec
from trine.server import records as rec


def read_back(record: rec.Record, **spec_keys: Any) -> rec.Record:
    """``record`` as it is read from disk, after ``spec_keys`` were put into its job specification there."""
    body = json.loads(json.dumps(rec.to_body(record)))
    body["spec"] |= spec_keys
    return rec.from_body(record.kind, body)


def accepted(**keys: Any) -> rec.Accepted:
    return rec.Accepted(1.0, "1", "owner", "default", 1.0, spec(**keys))


def test_numbers_that_are_refused_today_do_not_stop_the_reading_of_a_journal() -> None:
    record = read_back(accepted(), steps=1e15, max_runtime=5e-324)
    assert isinstance(record, rec.Accepted)
    assert (record.spec.steps, record.spec.max_runtime) == (1e9, 1e-3)
    assert read_back(record) == record, "what was moved is kept"


def test_a_record_without_ranks_means_a_process_per_gpu_as_it_did_when_it_was_written() -> None:
    body = json.loads(json.dumps(rec.to_body(accepted(run=["torchrun", "train.py"], gpus=2))))
    assert body["spec"].pop("ranks") == "node", "always on record, whatever the default"
    old = rec.from_body("accepted", body)
    assert isinstance(old, rec.Accepted) and old.spec.ranks == "gpu"
    assert read_back(old) == old


def test_the_new_keys_are_on_record() -> None:
    record = accepted(retries=2, preemptible=False, min_run=60.0)
    assert read_back(record) == record


def test_a_stop_says_for_which_job_it_is_and_old_stops_read_as_before() -> None:
    """What was possible before is written as before; the job and the gain are there only where they are known."""
    old = {"job": "1", "epoch": 2, "moves": False, "why": "preempted", "sentence": "job 1 is preempted."}
    plain = rec.from_body("ticked", {"at_s": 1.0, "fill": False, "heard": [], "starts": [], "stops": [old]})
    assert rec.to_body(plain)["stops"] == [old]
    (stop,) = plain.orders.stops
    assert (stop.for_job, stop.gain_s) == ("", 0.0)
    stops = (
        rec.StopOrder("1", 2, False, "preempted", "", "7"),
        rec.StopOrder("2", 1, True, "moved", "", gain_s=90.5),
        rec.StopOrder("3", 1, False, "preempted", "", "7", weighed={"gain": 4.0, "cost": 1.5}),
    )
    told = rec.Ticked(1.0, False, orders=rec.Orders((), stops))
    body = json.loads(json.dumps(rec.to_body(told)))
    assert [o.get("for_job") for o in body["stops"]] == ["7", None, "7"]
    assert rec.from_body("ticked", body) == told
