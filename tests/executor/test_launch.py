"""What a job sees of the daemon's environment, and what it brings itself."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping

from trine.executor.attempt.spec import make_spec
from trine.executor.base import JobLease

DAEMON = {"PATH": "/daemon/bin", "VIRTUAL_ENV": "/daemon", "LD_LIBRARY_PATH": "/daemon/lib", "LANG": "C"}


def variables(environ: Mapping[str, str], **own: str) -> dict[str, str]:
    lease = JobLease("j", 1, (("node0", (0,)),), ("true",), own)
    found: dict[str, str] = make_spec(lease, environ, 20_000, "", "")["env"]
    return found


def test_a_job_that_brings_nothing_gets_the_programs_of_the_daemon_and_no_secrets() -> None:
    found = variables({**DAEMON, "API_KEY": "secret"})
    assert {name: found[name] for name in DAEMON} == DAEMON and "API_KEY" not in found


def test_a_job_with_its_own_path_gets_no_libraries_of_the_daemon() -> None:
    found = variables(DAEMON, PATH="/my/bin")
    assert (found["PATH"], found["LANG"]) == ("/my/bin", "C")
    assert "VIRTUAL_ENV" not in found and "LD_LIBRARY_PATH" not in found
    assert variables(DAEMON, PATH="/my/bin", LD_LIBRARY_PATH="/my/lib")["LD_LIBRARY_PATH"] == "/my/lib"


def test_home_and_user_are_there_even_if_the_daemon_was_started_without_variables() -> None:
    me = pwd.getpwuid(os.geteuid())
    found = variables({})
    assert (found["HOME"], found["USER"], found["LOGNAME"]) == (me.pw_dir, me.pw_name, me.pw_name)
    assert variables({"HOME": "/elsewhere"})["HOME"] == "/elsewhere"
