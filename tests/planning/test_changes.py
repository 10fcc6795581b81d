"""Changes that are tried on a live state: what they do there, and that nothing else differs between both sides."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.server.site import Site
from trine.core.cluster import Node
from trine.core.errors import InputError
from trine.inputs.job_spec import JobSpec
from trine.perf.throughput import ThroughputTable
from trine.planning.changes import Moment, changed
from trine.planning.live_present import live_state
from trine.planning.worker import answer
from trine.server.build import Model
from trine.server.interface import Caller
from trine.server.predictions import ForecastRequest
from trine.server.scheduler import Scheduler
from trine.server.state import LiveState

ANN = Caller("ann")


def _request(home: Path, fill: Callable[[Site, Scheduler], Awaitable[None]], **options: Any) -> ForecastRequest:
    """What the forecaster is asked of a daemon after ``fill``."""

    async def run() -> ForecastRequest:
        site = Site(home, **({"gpus": "2x4", "policy": "fifo"} | options))
        daemon = await site.up()
        try:
            await fill(site, daemon)
            return daemon.forecasts._request(draws=10)()
        finally:
            await site.crash()

    return asyncio.run(run())


async def _submit(daemon: Scheduler, **spec: Any) -> str:
    (job_id,) = await daemon.submit([JobSpec.model_validate({"run": ["true"], **spec})], ANN)
    return job_id


async def _queue(site: Site, daemon: Scheduler) -> None:
    """Two jobs that have run for five minutes, each on a node of its own, and a line of jobs behind them."""
    for _ in range(2):
        await _submit(daemon, gpus=4, max_runtime=3600)
    await site.quiet()
    for gpus, limit_s in ((4, 3600), (2, 600), (2, None), (1, None), (8, 1800)):
        await _submit(daemon, gpus=gpus, max_runtime=limit_s)
    site.now += 300.0
    await site.quiet()


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> ForecastRequest:
    return _request(tmp_path_factory.mktemp("queue"), _queue)


def _whatif(request: ForecastRequest, *changes: str) -> dict[str, Any]:
    return answer(ForecastRequest(request.live, request.ended, request.model, request.now_s, 10, changes=changes))


@pytest.mark.parametrize("change", ["submit 2 10m", "submit 2", "submit 3 2h", "submit 1 1h"])
def test_a_job_behind_all_others_changes_nothing_for_them(change: str, queue: ForecastRequest) -> None:
    """Whichever of them is like it: their lengths are drawn as if it were not there."""
    found = _whatif(queue, change)
    for job_id in "1234567":
        shift = found["jobs"][job_id]["change_s"]
        assert shift == pytest.approx({"low": 0.0, "median": 0.0, "high": 0.0}, abs=1e-3), job_id
    assert found["same"] == 7


@pytest.mark.parametrize("change", ["lose node1", "hold 2", "cancel 2"])
def test_a_job_that_loses_its_gpus_leaves_the_length_of_the_others_as_it_was(
    change: str, queue: ForecastRequest
) -> None:
    shift = _whatif(queue, change)["jobs"]["1"]["change_s"]
    assert shift == pytest.approx({"low": 0.0, "median": 0.0, "high": 0.0}, abs=1e-3)


def test_a_node_that_is_drained_keeps_its_jobs_and_one_that_is_lost_does_not(queue: ForecastRequest) -> None:
    drained, lost = (_whatif(queue, change)["jobs"] for change in ("drain node1", "lose node1"))
    assert drained["2"]["change_s"]["high"] == pytest.approx(0.0, abs=1e-3)
    assert lost["2"]["change_s"]["low"] > 300.0, "what it has done is not saved"
    assert drained["7"]["never_runs"] and lost["7"]["never_runs"], "there are not eight GPUs any more"


async def _pipeline(site: Site, daemon: Scheduler) -> None:
    """A job that runs, and jobs that wait for it to end, or for a turn in their array."""
    await _submit(daemon, gpus=4, max_runtime=3600)
    for after in ("any:1", "1", "failed:1"):
        await _submit(daemon, gpus=1, max_runtime=600, after=[after])
    await daemon.submit([JobSpec.model_validate({"run": ["true"], "gpus": 1, "array": "0-2%1"})], ANN)
    await site.quiet()


def test_a_job_that_is_cancelled_lets_those_start_that_waited_for_its_end(tmp_path: Path) -> None:
    request = _request(tmp_path, _pipeline)
    found = _whatif(request, "cancel 1")["jobs"]
    assert found["2"]["change_s"]["high"] < 0, "however it ends"
    assert found["3"]["never_runs"], "it had to end well"
    assert found["4"]["before"] is None and found["4"]["after"]["end_s"] is not None, "it had to fail"
    assert not found["1"]["never_runs"]
    assert _whatif(request, "hold 1")["jobs"]["2"]["never_runs"], "it waits as long as the job is held"
    turns = _whatif(request, "cancel 5")["jobs"]
    assert turns["6"]["change_s"]["high"] < 0 and turns["7"]["change_s"]["high"] < 0


def _changed(request: ForecastRequest, *changes: str, **moment: Any) -> LiveState:
    return changed(live_state(request), changes, Moment(request.now_s, **moment))


def test_another_policy_leaves_all_other_settings_as_they_are(queue: ForecastRequest) -> None:
    before = live_state(queue)
    before.settings = {"locality_penalty": 1.7, "quantum": 60.0}
    before.policy, before.accounts = "las", {"attained": {}, "placement/cursor": 3}
    las = changed(before, ["policy fifo"], Moment(queue.now_s))
    assert las.policy == "fifo" and las.settings == {"locality_penalty": 1.7} and las.accounts == {}


def test_another_placement_leaves_the_accounts_of_the_policy(queue: ForecastRequest) -> None:
    before = live_state(queue)
    before.accounts = {"attained": {}, "placement/cursor": 3}
    found = changed(before, ["placement packed"], Moment(queue.now_s))
    assert found.placement == "packed" and "attained" in found.accounts


def _nodes(state: LiveState) -> list[Node]:
    assert state.cluster is not None
    return list(state.cluster.nodes)


def test_nodes_that_are_added_have_names_of_their_own(queue: ForecastRequest) -> None:
    nodes = _nodes(_changed(queue, "add 2x8", "add 1x4"))
    assert [node.gpus for node in nodes] == [4, 4, 8, 8, 4] and len({node.name for node in nodes}) == 5


@pytest.mark.parametrize(
    "change", ["add 0x8", "add 2x0", "add 9999x999", "add 2x99999999", "add 1x8:^", "drain", "drain node9"]
)
def test_nodes_that_cannot_be_are_refused(change: str, queue: ForecastRequest) -> None:
    with pytest.raises(InputError, match="expected"):
        _changed(queue, change)


def test_nodes_of_another_type_are_as_fast_as_the_table_says_or_as_the_others(queue: ForecastRequest) -> None:
    assert _nodes(_changed(queue, "add 1x8:a100"))[-1].gpu_type == "a100"
    assert _nodes(_changed(queue, "add 1x8:GPU"))[-1].gpu_type == "gpu"
    with pytest.raises(InputError, match="unknown GPU type 'b100'"):
        _changed(queue, "add 1x8:b100", measured_types=("a100", "gpu"))
    found = _whatif(queue, "add 1x8:a100")
    assert found["assumed"] == ["Nothing was measured on a100: it is taken to be as fast as gpu."]
    assert found["jobs"]["3"]["change_s"]["median"] < 0
    measured = ThroughputTable({("m", 1): {"gpu": 1.0, "a100": 2.0}})
    known = ForecastRequest(queue.live, [], Model(measured), queue.now_s, 10, changes=("add 1x8:a100",))
    assert answer(known)["assumed"] == []
