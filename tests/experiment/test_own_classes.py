"""Policies and placements as classes and objects: from a cell, with parameters, in several processes."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest

import trine
from trine.assembly.choices import label_of
from trine.core.reason import Reason
from trine.placement.base import Ask
from trine.placement.free_index import FreePool
from trine.policy.view import Floats, View

SMALL: dict[str, Any] = {
    "workload": "philly",
    "cluster": "4x4",
    "settings": {"workload.jobs": 40, "workload.load": 1.2},
}


@dataclass
class Weighted(trine.KeyPolicy):
    """GPUs to a power, then arrival."""

    name: ClassVar[str] = "weighted"
    title: ClassVar[str] = "by size"
    power: float = trine.param(1.0, "of the number of GPUs")
    seen: list[int] = field(default_factory=list, init=False)

    def key(self, view: View) -> Floats:
        self.seen.append(len(view))
        return view.gpus.astype(float) ** self.power


class Plain(trine.KeyPolicy):
    name = "plain"

    def key(self, view: View) -> Floats:
        return -view.gpus.astype(float)


class LikeSrtf(trine.KeyPolicy):
    name = "base"

    def key(self, view: View) -> Floats:
        return view.remaining_s


class ShortFirst(LikeSrtf):
    """Its name is inherited, so the class names it."""


class LowestIds(trine.Placement):
    name = "lowest-ids"
    sticky = True

    def place(self, ask: Ask, pool: FreePool) -> list[int] | Reason:
        return sorted(pool.gpus())[: ask.job.gpus]


def test_a_class_an_object_and_its_parameters_by_settings_are_the_same_policy() -> None:
    by_settings = trine.simulate(**SMALL | {"settings": SMALL["settings"] | {"power": -1}}, policy=Weighted)
    by_object = trine.simulate(**SMALL, policy=Weighted(power=-1.0))
    assert by_settings.jobs == by_object.jobs
    assert by_settings.jobs != trine.simulate(**SMALL, policy=Weighted).jobs
    assert trine.simulate(**SMALL, policy=Plain).jobs == by_object.jobs, "a class needs no parameters"
    assert trine.simulate(**SMALL, policy=LikeSrtf).jobs == trine.simulate(**SMALL, policy="srtf").jobs


def test_names_tell_classes_and_objects_apart() -> None:
    labels = [label_of(choice) for choice in ("fifo", Weighted, Weighted(), Weighted(power=2.0), ShortFirst)]
    assert labels == ["fifo", "weighted", "weighted", "weighted(power=2.0)", "short-first"]
    compared = trine.compare(**SMALL, policies=[LikeSrtf, ShortFirst], workers=1)
    assert compared.runs["policy"].to_pylist() == ["base", "short-first"]


def test_every_run_has_an_object_of_its_own() -> None:
    given = Weighted(power=2.0)
    first, second = (trine.simulate(**SMALL, policy=given) for _ in range(2))
    assert given.seen == []
    assert first.jobs == second.jobs


def test_parameters_of_one_class_do_not_disturb_the_other_policies() -> None:
    settings = SMALL["settings"] | {"weighted.power": 3.0}
    compared = trine.compare(**SMALL | {"settings": settings}, policies=["fifo", Weighted, Plain], workers=1)
    alone = trine.simulate(**SMALL, policy=Weighted(power=3.0))
    assert compared.run("weighted").jobs == alone.jobs


def test_a_placement_of_ones_own() -> None:
    result = trine.simulate(**SMALL, placement=LowestIds)
    assert result.summary["placement"] == "lowest-ids"
    assert result.summary["finished"] == 40


def test_a_share_policy_of_ones_own() -> None:
    from trine.policy.shares.max_min_fairness import MaxMinFairness

    class Mine(MaxMinFairness):
        """As its base."""

    mine, theirs = (trine.simulate(**SMALL, policy=policy) for policy in (Mine, "max-min-fairness"))
    assert mine.jobs == theirs.jobs


def test_what_is_wrong_with_a_class_is_said_before_anything_runs() -> None:
    class Open(trine.KeyPolicy):
        name = "open"

    class Nameless(trine.Policy):
        def rank(self, view: View) -> Any:
            return None

    with pytest.raises(trine.TrineError, match=r"policy: the policy Open without key; expected a method key\("):
        trine.simulate(**SMALL, policy=Open)
    with pytest.raises(trine.TrineError, match="the class Nameless without a name; expected name ="):
        trine.simulate(**SMALL, policy=Nameless)
    with pytest.raises(trine.TrineError, match="placement: the class Plain"):
        trine.simulate(**SMALL, placement=Plain)


CELLS = """
{future}
import sys, types
main = types.ModuleType("__main__")  # as in a kernel: no file that another process could read
sys.modules["__main__"] = main
code = '''
{future}
from dataclasses import dataclass
from typing import ClassVar
import trine

SIGN = -1.0

@dataclass
class Mine(trine.KeyPolicy):
    name: ClassVar[str] = "mine"
    power: float = trine.param(1.0, "of the number of GPUs")

    def key(self, view: trine.View):
        return SIGN * view.gpus.astype(float) ** self.power

settings = {{"workload.jobs": 60, "workload.load": 3}}
found = [
    trine.compare(workload="philly", cluster="2x4", policies=["fifo", Mine, Mine(power=-1.0)], seeds=range(2),
                  settings=settings, workers=workers)
    for workers in (1, 2)
]
one, two = (comparison.runs for comparison in found)
assert one == two and found[0].jobs == found[1].jobs
print(*two["policy"].to_pylist(), len(set(two["jct_mean_s"].to_pylist())))
'''
exec(compile(code, "<cell>", "exec"), vars(main))
"""


@pytest.mark.parametrize("future", ["", "from __future__ import annotations"])
def test_a_class_of_a_cell_runs_in_two_processes(future: str) -> None:
    words = [sys.executable, "-W", "error", "-c", CELLS.format(future=future)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [*["fifo"] * 2, *["mine"] * 2, *["mine(power=-1.0)"] * 2, "6"]


def test_a_class_in_several_processes_without_cloudpickle_is_a_sentence() -> None:
    program = "import sys; sys.modules['cloudpickle'] = None\n" + CELLS.format(future="")
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    said = "a class of a notebook in several processes needs cloudpickle, not part of this installation"
    assert said in done.stderr.splitlines()[-1]


def test_a_script_that_every_worker_would_run_again_is_a_sentence(tmp_path: Any) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import trine\n"
        "trine.compare(workload='philly', cluster='4x4', policies=['fifo', 'las', 'srtf'],\n"
        "              settings={'workload.jobs': 5}, workers=2)\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1
    assert 'outside of `if __name__ == "__main__":`' in done.stderr.splitlines()[-1]
