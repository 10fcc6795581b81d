"""Public traces that are not at hand, as their publishers describe them: units, GPUs, users, groups, what is no job."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from trine.core.errors import InputError
from trine.core.job import Job
from trine.trace import ImportOptions, inspect, load
from trine.trace.formats import known

HELIOS = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
ACME = "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time\n"
SLURM = "id_job,id_user,partition,state,time_submit,time_start,time_end,tres_alloc,tres_req,timelimit\n"
SWF = "{} {} 5 {} {} -1 -1 {} 900 -1 {} {} 3 -1 {} -1 -1 -1\n"


def file(folder: Path, text: str, name: str = "trace") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def facts(jobs: list[Job]) -> list[tuple[str, float, int, float | None, str, str]]:
    return [(j.id, j.submit_s, j.gpus, j.ideal_s, j.user, j.group) for j in jobs]


def test_helios_counts_dates_from_the_first_job_and_leaves_out_what_ran_on_no_gpu(tmp_path: Path) -> None:
    day = "2020-06-30 23:{}:00"
    rows = [
        ("2", "u2", "vcB", 8, "FAILED", day.format(59), "2020-07-01 00:09:00", "2020-07-01 01:09:00"),
        ("1", "u1", "vcA", 1, "COMPLETED", day.format(50), day.format(51), day.format(56)),
        ("3", "u1", "vcA", 0, "COMPLETED", day.format(50), day.format(51), day.format(56)),
        ("4", "u1", "vcA", 4, "CANCELLED", day.format(52), "", ""),
        ("5", "u1", "vcA", 4, "RUNNING", day.format(52), day.format(53), "None"),
        ("6", "u1", "vcA", 4, "FAILED", day.format(52), day.format(54), day.format(53)),
    ]
    text = HELIOS + "".join(
        f"{i},{user},{vc},{gpus},9,1,{state},{sub},{start},{end},999999,7\n"
        for i, user, vc, gpus, state, sub, start, end in rows
    )
    trace = load(file(tmp_path, text))
    assert facts(trace.jobs) == [("1", 0, 1, 300, "u1", "vcA"), ("2", 540, 8, 3600, "u2", "vcB")]
    assert trace.summary.skipped == {**{"zero-gpu": 1, "never-started": 1, "still-running": 1, "end-before-start": 1}}


def test_acme_reads_times_with_zones_and_not_the_duration_that_holds_the_wait(tmp_path: Path) -> None:
    """A job of Kalos states 615 s and ran for 600 s: its duration is counted from submission."""
    kalos = load(file(tmp_path, known()["acme"].examples[1])).jobs
    assert facts(kalos) == [("dlc1", 0, 32, 600, "u4", "Pretrain")]
    day, utc = "2023-03-01 08:{}+08:00", "2023-03-01 00:{}+00:00"
    rows = (
        f"a,u,1,8,9,Eval,COMPLETED,{day.format('00:10')},{day.format('00:20')},{day.format('01:20')},60,10,0\n"
        f"b,u,1,1,9,Eval,COMPLETED,{utc.format('00:00')},{utc.format('00:00')},{utc.format('00:30')},30,0,0\n"
    )
    jobs = load(file(tmp_path, ACME + rows)).jobs
    assert facts(jobs) == [("b", 0, 1, 30, "u", "Eval"), ("a", 10, 8, 60, "u", "Eval")]


PAI_TASKS = (
    "j1,ps,2.0,Terminated,90.0,700.0,600.0,29.3,,\n"
    "j2,worker,3.0,Terminated,50.0,60.0,600.0,29.3,25.0,T4\n"
    "j1,worker,4.0,Terminated,110.0,650.0,600.0,29.3,100.0,V100\n"
    "j1,evaluator,1.0,Failed,100.0,690.0,600.0,29.3,50.0,V100\n"
    "j1,worker,4.0,Terminated,110.0,650.0,600.0,29.3,100.0,V100\n"
    "cpu,worker,1.0,Terminated,1.0,2.0,600.0,29.3,0.0,CPU\n"
    "late,worker,1.0,Running,7.0,,600.0,29.3,100.0,P100\n"
    "never,worker,1.0,Failed,0.0,9.0,600.0,29.3,100.0,P100\n"
)


def test_pai_puts_the_tasks_of_a_job_together(tmp_path: Path) -> None:
    """GPUs are percent of one; ps tasks hold none; an exact copy of a row does not count twice; start 0 is no start."""
    trace = load(file(tmp_path, PAI_TASKS, "pai_task_table.csv"))
    assert facts(trace.jobs) == [("j2", 50, 1, 10, "", ""), ("j1", 100, 5, 590, "", "")]
    assert trace.summary.skipped == {
        **{"further-task": 2, "duplicate-row": 1, "zero-gpu": 1, "still-running": 1, "never-started": 1}
    }
    assert trace.summary.changed == {"fractional-gpu": 2, "unsorted": 1}
    assert "No pai_job_table.csv" in trace.summary.sentences[-1]


def test_pai_takes_users_and_submission_from_the_job_table_beside_it(tmp_path: Path) -> None:
    jobs = "j1,i1,ann,Terminated,80.0,700.0\nj2,i2,bob,Terminated,20.0,60.0\n"
    (tmp_path / "pai_job_table.csv.gz").write_bytes(gzip.compress(jobs.encode()))
    trace = load(file(tmp_path, PAI_TASKS, "pai_task_table.csv"))
    assert facts(trace.jobs) == [("j2", 20, 1, 10, "bob", ""), ("j1", 80, 5, 590, "ann", "")]
    assert "from pai_job_table.csv.gz" in trace.summary.sentences[-1]


def test_pai_sample_multiplies_instances(tmp_path: Path) -> None:
    trace = load(file(tmp_path, known()["pai-sample"].examples[0]))
    assert facts(trace.jobs) == [("11", 0, 1, 900, "u1", ""), ("12", 30, 4, 7200, "u2", "")]
    assert trace.summary.skipped == {"zero-gpu": 1}


def attempt(start: str | None, end: str | None, gpus: int = 1) -> dict[str, Any]:
    servers = [{"ip": f"m{i}", "gpus": ["gpu0"]} for i in range(gpus)]
    return {"start_time": start, "end_time": end, "detail": servers}


def philly_job(number: int, attempts: list[dict[str, Any]]) -> dict[str, Any]:
    job = {"status": "Pass", "vc": "v", "user": "u", "submitted_time": "2017-10-08 10:00:00"}
    return job | {"jobid": f"application_{number}", "attempts": attempts}


def test_philly_json_adds_up_attempts_and_tells_jobs_that_never_ran_from_those_that_still_do(tmp_path: Path) -> None:
    at = "2017-10-08 1{}:00:00"
    jobs = [
        philly_job(1, [attempt(at.format(1), at.format(2), gpus=3), attempt(at.format(5), at.format(6), gpus=3)]),
        philly_job(2, []),
        philly_job(3, [attempt(at.format(1), None)]),
        philly_job(4, [attempt(at.format(1), "None"), attempt(at.format(2), at.format(3))]),
        philly_job(5, [attempt(None, None)]),
        philly_job(6, [attempt(at.format(2), at.format(1))]),
    ]
    trace = load(file(tmp_path, json.dumps(jobs, indent=1)))
    assert [(j.id, j.gpus, j.ideal_s, j.user, j.group) for j in trace.jobs] == [
        ("application_1", 3, 7200, "u", "v"),
        ("application_4", 1, 3600, "u", "v"),
    ]
    assert trace.summary.skipped == {"never-started": 2, "still-running": 1, "end-before-start": 1}


def test_swf_honours_its_header_and_its_marks_for_unknown(tmp_path: Path) -> None:
    text = (
        "; Version: 2.2\n;   UnixStartTime:  800000000\n; Queue: 2 night (long jobs)\n; Note: 'x\", y\n"
        + SWF.format(1, 0, 60, 4, 8, 1, 11, 2)
        + SWF.format(2, 10, 60.5, -1, 8, 0, -1, 7)
        + SWF.format(3, 20, -1, -1, 8, 5, 11, -1)
        + SWF.format(4, 30, -1, 4, 4, 1, 11, -1)
        + SWF.format(5, 40, 0, 4, 4, 0, 11, -1)
        + SWF.format(6, 50, 90, 1, 1, 1, 12, -1)
        + SWF.format(6, 50, 30, 1, 1, 2, 12, -1)
        + SWF.format(6, 70, 60, 1, 1, 3, 12, -1)
    )
    trace = load(file(tmp_path, text))
    assert facts(trace.jobs) == [
        ("1", 0, 4, 60, "11", "night"),
        ("2", 10, 8, 60.5, "", "7"),
        ("6", 50, 1, 90, "12", ""),
    ]
    assert trace.summary.skipped == {
        **{"never-started": 1, "unknown-run-time": 1, "zero-duration": 1, "partial-execution": 2}
    }
    # 800000000 is 1995-05-09 06:13:20: the header dates second 0, so that a window can be given as dates.
    options = ImportOptions(since="1995-05-09T06:13:30", until="1995-05-09 06:13:50")
    assert [(j.id, j.submit_s) for j in load(file(tmp_path, text), options=options).jobs] == [("2", 0)]


def test_batsim_takes_fixed_times_up_to_the_walltime_and_skips_what_needs_a_platform(tmp_path: Path) -> None:
    trace = load(file(tmp_path, known()["batsim"].examples[0]))
    assert [(j.id, j.submit_s, j.gpus, j.ideal_s, j.model) for j in trace.jobs] == [
        ("a", 0, 1, 10, "ten"),
        ("2", 3.5, 4, 40, "twice"),
        ("cut", 6, 2, 4, "ten"),
    ]
    assert trace.summary.skipped == {"platform-time": 1}


def test_batsim_profiles_may_stand_first_and_bear_the_names_of_version_5(tmp_path: Path) -> None:
    profiles = {"d": {"type": "DelayProfile", "delay": 7}, "s": {"type": "SequentialCompositionProfile", "seq": ["d"]}}
    jobs = [{"id": "w!1", "subtime": 1, "res": 1, "profile": "s", "walltime": -1}]
    path = file(tmp_path, json.dumps({"profiles": profiles, "jobs": jobs}, separators=(",", ":")))
    assert [(j.id, j.ideal_s) for j in load(path).jobs] == [("w!1", 7)]


def test_pollux_has_no_run_times_and_says_so(tmp_path: Path) -> None:
    path = file(tmp_path, known()["pollux"].examples[0])
    assert (inspect(path).jobs, inspect(path).duration_p50_s) == (3, None)
    with pytest.raises(InputError, match="no run times in this file; expected --set duration_s="):
        load(path)
    jobs = load(path, options=ImportOptions(duration_s=60)).jobs
    assert [(j.id, j.submit_s, j.gpus, j.model, j.batch_size) for j in jobs][1] == (
        *("imagenet-1", 401.5, 12, "imagenet", 3200),
    )


def test_hydra_takes_the_fastest_type_and_absolute_deadlines(tmp_path: Path) -> None:
    jobs = load(file(tmp_path, known()["hydra"].examples[0])).jobs
    assert [(j.id, j.submit_s, j.gpus, j.ideal_s, j.deadline_s) for j in jobs] == [
        ("a1", 0, 1, 1000, None),
        ("b2", 30, 1, 5400, 9000),
    ]
    assert [j.ideal_s for j in load(file(tmp_path, known()["hydra"].examples[1])).jobs] == [4, 2]


def test_supercloud_finds_gpus_among_the_resources_and_numbers_requeued_jobs(tmp_path: Path) -> None:
    trace = load(file(tmp_path, known()["supercloud"].examples[0]))
    assert facts(trace.jobs) == [("901", 0, 2, 3600, "7", "gaia"), ("901.2", 0, 2, 60, "7", "gaia")]
    assert trace.summary.skipped == {"zero-gpu": 1, "never-started": 1, "still-running": 1}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (HELIOS.replace(",vc", "") + "1\n", "also vc (closest format: helios)"),
        (ACME.replace("type", "kind") + "1\n", "also type (closest format: acme)"),
        (SLURM.replace("tres_req", "gres") + "1\n", "also tres_req (closest format: supercloud)"),
        (SLURM.strip() + ",account\n1\n", "no account (closest format: supercloud; --format supercloud ignores"),
        ("j1,i1,ann,Terminated,80.0,700.0\n", "pai_task_table.csv: this looks like the job table"),
        ("j,t,i,w,x,Failed,1,2,m\n", "pai_task_table.csv: this looks like the instance table"),
        ("job_name,task_name,inst_num,status,plan_gpu\n", "(closest format: pai)"),
        (",job_name,norm_job_submit_time,A100\n", "also ddl (closest format: hydra)"),
        ("name,time,application,batch_size\n", "also num_replicas (closest format: pollux)"),
        ("; Version: 2\n1 2 3 4 5\n", "18 numbers a line, not 5 (closest format: swf)"),
        ('{"jobs": [], "nb_res": 3}', "also the keys profiles (closest format: batsim)"),
        (
            '[{"jobid": "a", "vc": "b", "user": "c"}]',
            "also the keys submitted_time,attempts,status (closest format: philly",
        ),
        ("date,vcA,vcB,total\n2020-09-01,64,8,72\n", "looks like the GPUs of virtual clusters by day"),
    ],
)
def test_a_near_miss_names_the_format_that_was_meant(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(InputError) as caught:
        load(file(tmp_path, text))
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (HELIOS + "1,u,v,two,1,1,S,2020-01-01,2020-01-01,2020-01-02,1,0\n", ":2: gpu_num: found 'two'"),
        (ACME + "1,u,1,2,1,t,S,yesterday,,,1,0,0\n", ":2: submit_time: found 'yesterday'"),
        (SLURM + "1,2,p,3,1609459200,1609459201,1609459202,1=2;1002,,9\n", ":2: tres_alloc: found '1=2;1002'"),
        ("; x\n" + SWF.format(1, 0, 60, 4, 8, 1, 1, 1) + "2 3\n", ":3: 2 fields; expected 18"),
        (SWF.format(1, 0, "60", -3, 8, 1, 1, 1), ":1: processors: found '-3'; expected a number, or -1"),
        (
            '[\n{"jobid": "a", "vc": "b", "user": "c", "status": "", "submitted_time": "x", "attempts": []}]',
            ":2: submitted_",
        ),
        (
            '{"jobs": [\n{"id": 1, "subtime": 0, "res": 1, "profile": "dely"}],\n"profiles": {"delay": {}}}',
            ":2: profile: unk",
        ),
        ('{"jobs": [\n{"id": 1, "subtime": 0}], "profiles": {}}', ":2: res: no such key"),
        ('{"jobs": [\n7], "profiles": {}}', ":2: found 7; expected an object"),
        (
            '{"profiles": {"s": {"type": "composed", "seq": ["s"]}},'
            ' "jobs": [{"id": 1, "subtime": 0, "res": 1, "profile": "s"}]}',
            "a sequence that contains itself",
        ),
        ('{"jobs": [{"id": 1,\n "subtime": 0,,', ":2: JSON that ends or breaks here"),
        ("j1,ps,one,Failed,1,2,3,4,5,T4\n", ":1: inst_num: found 'one'"),
    ],
)
def test_a_wrong_value_is_named_by_line_and_field(tmp_path: Path, text: str, complaint: str) -> None:
    path = file(tmp_path, text)
    with pytest.raises(InputError) as caught:
        load(path, "batsim" if text.startswith("{") else None)
    assert str(path) in str(caught.value) and complaint in str(caught.value)
    assert "\n" not in str(caught.value)
