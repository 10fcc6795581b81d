"""Control groups, in each hierarchy that this machine has and this user may use."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.executor.driving import running, unique_s, until
from trine.executor.attempt.cgroup import ROOT, Cgroup, make_cgroup


@pytest.fixture(params=["unified", "freezer"])
def cgroup(request: pytest.FixtureRequest) -> Iterator[Cgroup]:
    own = dict(line.split(":", 2)[1:] for line in Path("/proc/self/cgroup").read_text().splitlines())
    mount = Path(ROOT) / request.param
    if request.param == "unified" and (Path(ROOT) / "cgroup.controllers").exists():
        mount = Path(ROOT)
    path = (
        mount / own.get("" if request.param == "unified" else "freezer", "/").lstrip("/") / f"trine-test-{os.getpid()}"
    )
    try:
        path.mkdir()
    except OSError:
        pytest.skip(f"no group can be made in {mount}")
    group = Cgroup(str(path))
    yield group
    group.kill()
    until(lambda: not group.pids(), "the end of the group")
    group.remove()


def test_what_is_in_a_group_ends_with_it_however_deep(cgroup: Cgroup) -> None:
    nap = unique_s()
    script = (
        f"echo 0 > {cgroup.path}/cgroup.procs; trap '' TERM; setsid sh -c 'sleep {nap} & sleep {nap}' & sleep {nap}"
    )
    with subprocess.Popen(["/bin/sh", "-c", script]) as shell:
        # Three naps, the shell and the shell below it.
        until(lambda: len(cgroup.pids()) == 5, "all processes of the group")
        cgroup.kill()
        assert shell.wait(20) == -9
    until(lambda: not cgroup.pids(), "the end of the group")
    assert running(f"sleep {nap}") == []
    cgroup.remove()
    assert not Path(cgroup.path).exists()


def test_without_rights_there_is_no_group_and_nothing_fails(tmp_path: Path) -> None:
    group = make_cgroup("trine-test", str(tmp_path))
    assert group.path == "" and group.pids() == []
    group.enter()
    group.kill()
    group.remove()
