"""Queues, users and quotas: what the configuration says, and who may submit what."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.inputs.job_specs import from_command
from trine.core.errors import InputError
from trine.inputs.job_spec import JobSpec
from trine.server.access import Access, WaitingJobs, read_access
from trine.server.interface import Caller, Refused

CONFIG = """\
queues:
  default:
  research: {weight: 3, max_gpus: 16, max_waiting: 2, users: [anna, ben]}
  open: {users: any, max_priority: 0, retries: 2}
users:
  anna: {max_waiting: 3, max_gpus: 8}
default_queue: open
"""
ANNA, CARL, ADMIN = Caller("anna"), Caller("carl"), Caller("root", admin=True)


def config(folder: Path, text: str) -> Path:
    path = folder / "trine.yaml"
    path.write_text(text)
    return path


@pytest.fixture
def access(tmp_path: Path) -> Access:
    return read_access(config(tmp_path, CONFIG))


def job(**keys: object) -> JobSpec:
    return from_command(["train"], **keys)  # type: ignore[arg-type]


def refusal(access: Access, caller: Caller, *specs: JobSpec, load: WaitingJobs = WaitingJobs()) -> tuple[str, str]:  # noqa: B008
    with pytest.raises(Refused) as caught:
        access.admit(specs, caller, load)
    return caught.value.code, str(caught.value)


def test_the_file_is_read(access: Access) -> None:
    research = access.queues["research"]
    assert (research.weight, research.max_gpus, research.max_waiting) == (3.0, 16, 2)
    assert research.users == frozenset({"anna", "ben"}) and access.queues["open"].users is None
    assert access.limits("anna").max_gpus == 8 and access.limits("carl").max_gpus is None
    assert access.default_queue == "open"


def test_queue_and_user_are_filled_in(access: Access) -> None:
    (admitted,) = access.admit([job()], ANNA, WaitingJobs())
    assert (admitted.queue, admitted.user) == ("open", "anna")
    (admitted,) = Access().admit([job(gpus=5, user="ben")], ADMIN, WaitingJobs())
    assert (admitted.queue, admitted.user, admitted.gpus.count) == ("default", "ben", 5)


def test_retries_are_the_queues_where_the_job_does_not_say(access: Access) -> None:
    specs = [job(queue="open"), job(queue="open", retries=0), job(queue="default")]
    assert [spec.retries for spec in access.admit(specs, ADMIN, WaitingJobs())] == [2, 0, None]


def test_who_may_submit_where(access: Access) -> None:
    assert refusal(access, CARL, job(queue="research")) == (
        "forbidden",
        "User carl may not submit to queue research.",
    )
    assert refusal(access, CARL, job(user="anna"))[0] == "forbidden"
    code, sentence = refusal(access, ANNA, job(queue="reserch"))
    assert code == "unknown-queue" and "(did you mean 'research'?)" in sentence
    assert access.admit([job(queue="research", user="carl")], ADMIN, WaitingJobs())


def test_priorities_have_a_ceiling(access: Access) -> None:
    assert refusal(access, CARL, job(priority=1))[0] == "forbidden"
    assert access.admit([job(priority=-1)], CARL, WaitingJobs()) and access.admit(
        [job(priority=9)], ADMIN, WaitingJobs()
    )


def test_a_whole_batch_counts_against_the_limit(access: Access) -> None:
    research = job(queue="research", gpus=1)
    assert len(access.admit([research] * 2, ANNA, WaitingJobs())) == 2
    assert refusal(access, ANNA, research, research, research)[0] == "quota"
    assert refusal(access, ANNA, research, load=WaitingJobs({"research": 2}))[0] == "quota"
    code, sentence = refusal(access, ANNA, job(), job(), load=WaitingJobs({}, {"anna": 2}))
    assert code == "quota"
    assert sentence == "User anna has 2 jobs waiting, and 2 more would exceed the limit of 3."


def test_a_job_larger_than_its_share_never_runs(access: Access) -> None:
    assert refusal(access, ANNA, job(gpus=9))[0] == "quota"
    assert refusal(access, Caller("ben"), job(gpus=17, queue="research"))[0] == "quota"


def test_root_runs_jobs_only_as_known_users_and_as_root_only_on_purpose() -> None:
    access = Access(runs_as_user=True, is_user={"anna", "root"}.__contains__)
    assert access.admit([job()], ANNA, WaitingJobs())[0].user == "anna"
    assert refusal(access, CARL, job())[0] == "unknown-user"
    assert refusal(access, ADMIN, job(user="nobody-here"))[0] == "unknown-user"
    assert access.admit([job()], ADMIN, WaitingJobs())[0].user == "root"
    assert refusal(access, ANNA, job(user="root"))[0] == "forbidden"
    assert refusal(access, Caller("root"), job())[0] == "forbidden"
    assert refusal(access, Caller("anna", admin=True), job(user="root"))[0] == "forbidden"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("queue:\n  a:\n", "trine.yaml:1: unknown key 'queue' (did you mean 'queues'?)"),
        ("queues:\n  a:\n    wight: 2\n", "trine.yaml:3: queues.a: unknown key 'wight' (did you mean 'weight'?)"),
        ("queues:\n  a: {weight: 0}\n", "queues.a.weight: found '0'; expected a number greater than 0"),
        ("queues:\n  a: {users: anna}\n", "queues.a.users: found 'anna'; expected any or a list of users"),
        ("queues:\n  a/b: {weight: 1}\n", "found queue 'a/b'"),
        ("queues:\n  a: {retries: 1001}\n", "queues.a.retries: found '1001'"),
        ("queues:\n  a: {max_waiting: -1}\n", "queues.a.max_waiting: found '-1'"),
        ("queues: {a: }\ndefault_queue: b\n", "trine.yaml:2: default_queue: unknown queue 'b'"),
        ("users:\n  anna: 5\n", "users.anna: found '5'; expected a mapping"),
    ],
)
def test_mistakes_in_the_file_are_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_access(config(tmp_path, text))
    assert message in str(caught.value)


def test_a_second_name_of_root_is_root() -> None:
    access = Access(runs_as_user=True, is_user=lambda _: True, is_root=lambda name: name in ("root", "toor"))
    assert refusal(access, Caller("toor"), job())[0] == "forbidden"
    assert access.admit([job(user="ada")], ADMIN, WaitingJobs())[0].user == "ada"


_WITHOUT_DESCRIPTORS = """
import os, resource
from trine.inputs.job_spec import parse_jobs
from trine.server.access import Access, WaitingJobs
from trine.server.interface import Caller, Refused
[spec] = parse_jobs('{"run": ["true"]}')
access = Access(runs_as_user=True)
opened = len(os.listdir("/proc/self/fd")) - 1
resource.setrlimit(resource.RLIMIT_NOFILE, (opened, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
try:
    access.admit([spec], Caller("daemon"), WaitingJobs())
except Refused as refused:
    print(refused.code)
"""


def test_without_descriptors_no_user_is_said_to_be_unknown() -> None:
    """The system's look-up answers "no such user" when it cannot open its files; the caller is to try again."""
    done = subprocess.run([sys.executable, "-c", _WITHOUT_DESCRIPTORS], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["unavailable"], done.stderr
