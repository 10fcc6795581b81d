"""A scheduler that believes other speeds than the simulated world has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trine.core.errors import InputError
from trine.core.result import RunResult
from trine.sim.scenario import Scenario, run

TABLE = """\
model,gpus,gpu_type,steps_per_s
quick,1,v100,4
quick,1,p100,1
slow,1,v100,2
slow,1,p100,1
wide,4,v100,8
wide,4,p100,2
"""


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "rates.csv").write_text(TABLE)
    jobs = [f"{i},{i * 100},{4 if m == 'wide' else 1},8000,{m}" for i, m in enumerate(("quick", "slow", "wide") * 12)]
    (tmp_path / "jobs.csv").write_text("job_id,submit_s,gpus,steps,model\n" + "\n".join(jobs) + "\n")
    return {"trace": str(tmp_path / "jobs.csv"), "throughputs": str(tmp_path / "rates.csv")}


def simulated(files: dict[str, str], policy: str = "trine", placement: str = "trine", **values: Any) -> RunResult:
    told: dict[str, Any] = {"validate": True, "restore_s": 10} | {k.replace("__", "."): v for k, v in values.items()}
    return run(
        Scenario("v100=2x4,p100=2x4", policy, placement, files["trace"], throughputs=files["throughputs"], values=told)
    )


def ends(result: RunResult) -> dict[str, float]:
    return {record.job_id: record.finish_s for record in result.jobs}


def test_a_belief_that_happens_to_be_right_changes_nothing(files: dict[str, str]) -> None:
    right = simulated(files, network="ethernet-50g")
    believed = simulated(files, network="ethernet-50g", believed__blind="chip")  # all chips are alike
    assert ends(believed) == pytest.approx(ends(right))
    assert believed.summary.migrations == right.summary.migrations


def test_jobs_run_at_the_speed_of_the_world_and_not_at_that_which_is_believed(files: dict[str, str]) -> None:
    result = simulated(files, "fifo", "packed-sticky", believed__type_error=1.0)
    work_s = {"quick": (2000.0, 8000.0), "slow": (4000.0, 8000.0), "wide": (1000.0, 4000.0)}
    for record in result.jobs:
        model = ("quick", "slow", "wide")[int(record.job_id) % 3]
        assert record.finish_s - record.start_s in [pytest.approx(s) for s in work_s[model]]


def test_errors_depend_on_their_seed_alone(files: dict[str, str]) -> None:
    first, again = (simulated(files, believed__type_error=0.8, believed__seed=3) for _ in range(2))
    other = simulated(files, believed__type_error=0.8, believed__seed=4)
    assert ends(first) == ends(again)
    assert ends(first) != ends(other)


def test_without_eyes_for_types_jobs_are_served_worse(files: dict[str, str]) -> None:
    """All types look alike, so that the first free GPU is as good as any."""
    seeing, blind = simulated(files), simulated(files, believed__blind="type", calibrate=False)
    assert blind.summary.jct_mean_s > 1.05 * seeing.summary.jct_mean_s


def test_what_is_not_measured_goes_on_being_believed(files: dict[str, str]) -> None:
    """Types look alike for good: a job that sits on a slow one never learns that another is faster."""
    unseen = simulated(files, believed__blind="type", believed__measured=False)
    assert unseen.summary.migrations < simulated(files, believed__blind="type", calibrate=False).summary.migrations / 3


def test_calibration_changes_nothing_where_jobs_run_as_predicted(files: dict[str, str]) -> None:
    with_links: dict[str, Any] = {"network": "cloud-tcp", "congestion": 0.1}
    assert simulated(files, **with_links).jobs == simulated(files, **with_links, calibrate=False).jobs


def test_calibration_puts_wrong_speeds_right(files: dict[str, str]) -> None:
    """With predictions that are wrong by half, jobs stop wandering between types and end sooner."""
    wrong: dict[str, Any] = {"believed__type_error": 0.8, "believed__seed": 2, "round_s": 60}
    learning, stubborn = simulated(files, **wrong), simulated(files, **wrong, calibrate=False)
    assert learning.summary.migrations + learning.summary.preemptions < (
        stubborn.summary.migrations + stubborn.summary.preemptions
    )
    assert learning.summary.jct_mean_s <= stubborn.summary.jct_mean_s


def test_without_eyes_for_places_the_links_are_there_all_the_same(files: dict[str, str]) -> None:
    known: dict[str, Any] = {"network": "cloud-tcp", "congestion": 0.1}
    seeing, blind = simulated(files, **known), simulated(files, **known, believed__blind="place")
    assert blind.summary.comm_gpu_s >= seeing.summary.comm_gpu_s
    assert blind.summary.jct_mean_s >= seeing.summary.jct_mean_s


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"believed__blind": "rack"}, "unknown difference 'rack'"),
        ({"believed__type_error": 0.4, "ideal": True}, "believed.NAME with ideal=true"),
    ],
)
def test_what_cannot_be_believed_is_refused(files: dict[str, str], values: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        simulated(files, "max-min-fairness", "packed-sticky", **values)


def test_types_can_be_mistaken_only_where_they_are_known_to_differ(files: dict[str, str]) -> None:
    with pytest.raises(InputError, match="believed speeds without step times by type"):
        simulated({"trace": files["trace"]} | {"throughputs": ""}, believed__type_error=0.4)
