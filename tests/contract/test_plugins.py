"""What every policy and placement tells about itself, so that the command line can list, document and build it."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from trine.assembly.settings import parse_pairs, resolve
from trine.core.errors import InputError
from trine.core.job import Job
from trine.core.params import build, params_of
from trine.core.plugins import discover, find
from trine.placement.base import Placement
from trine.policy.base import FinishedJob, Policy

POLICIES: dict[str, type[Any]] = dict(discover("trine.policy", Policy))
PLACEMENTS: dict[str, type[Any]] = dict(discover("trine.placement", Placement))
ALL = [
    pytest.param(cls, id=f"{kind}-{name}")
    for kind, found in (("policy", POLICIES), ("placement", PLACEMENTS))
    for name, cls in found.items()
]
REQUIRED = {"fifo", "fifo-backfill", "srtf", "srsf", "las", "tiresias", "gittins"}
every = pytest.mark.parametrize("cls", ALL)


def test_those_that_others_rely_on_are_there() -> None:
    assert set(POLICIES) >= REQUIRED
    assert set(PLACEMENTS) >= {"packed", "random"}


@every
def test_it_has_a_name_a_title_and_a_sentence(cls: type[Any]) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", cls.name)
    assert not cls.name.endswith("-sticky"), "every placement has a sticky variant of that name"
    assert cls.title.strip() and "\n" not in cls.title and not cls.title.endswith(".")
    assert isinstance(cls.paper, str)
    assert "__doc__" in vars(cls) and len(inspect.getdoc(cls) or "") > 20
    assert not (cls.__doc__ or "").startswith(f"{cls.__name__}("), "the docstring is the one dataclass makes up"


@every
def test_it_lives_in_a_file_of_its_name(cls: type[Any]) -> None:
    source = Path(inspect.getfile(cls))
    assert source.stem == cls.name.replace("-", "_")
    assert (inspect.getmodule(cls).__doc__ or "").strip()


@every
def test_its_parameters_are_documented(cls: type[Any]) -> None:
    """Whatever a person may set has a sentence, a kind and a default; everything else is no parameter of init."""
    assert dataclasses.is_dataclass(cls)
    documented = params_of(cls)
    for field in dataclasses.fields(cls):
        assert not field.init or field.name in documented, f"{field.name} can be given but has no param()"
    for p in documented.values():
        assert p.doc.strip() and p.kind_name
        assert re.fullmatch(r"[a-z][a-z0-9_]*", p.name)


def as_text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


@every
def test_its_defaults_can_be_written_on_the_command_line(cls: type[Any]) -> None:
    defaults = {name: p.default for name, p in params_of(cls).items()}
    told = build(cls, {name: as_text(value) for name, value in defaults.items()})
    plain = build(cls, {})
    for name, value in defaults.items():
        assert getattr(told, name) == getattr(plain, name) == value


@every
def test_a_wrong_parameter_is_refused_with_a_hint(cls: type[Any]) -> None:
    with pytest.raises(InputError, match="unknown parameter"):
        build(cls, {"no_such_thing": "1"})
    for name in params_of(cls):
        with pytest.raises(InputError, match=re.escape(name)):
            build(cls, {f"{name}x": "1"})


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_says_how_it_behaves(name: str) -> None:
    cls = POLICIES[name]
    for flag in (cls.preemptive, cls.strict, cls.changes_with_time):
        assert isinstance(flag, bool)
    assert not inspect.isabstract(cls)


@pytest.mark.parametrize("name", PLACEMENTS)
def test_a_placement_comes_sticky_and_not(name: str) -> None:
    assert not inspect.isabstract(PLACEMENTS[name])
    assert resolve("fifo", name, {}).placement.sticky is PLACEMENTS[name].sticky, "only some are so by themselves"
    assert resolve("fifo", f"{name}-sticky", {}).placement.sticky


@pytest.mark.parametrize(("kind", "base"), [("policy", Policy), ("placement", Placement)])
def test_a_misspelt_name_is_answered_with_the_nearest(kind: str, base: type[Any]) -> None:
    for name in POLICIES if kind == "policy" else PLACEMENTS:
        with pytest.raises(InputError, match=f"did you mean '{name}'"):
            find(f"trine.{kind}", base, kind, f"{name}z", f"--{kind}")


POLICY_WITHOUT_KEY = """
from dataclasses import dataclass
from typing import ClassVar
from trine.policy.base import KeyPolicy

@dataclass
class Mine(KeyPolicy):
    name: ClassVar[str] = "mine"
"""


def test_a_file_that_leaves_a_method_open_is_told_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(POLICY_WITHOUT_KEY)
    with pytest.raises(InputError) as caught:
        find("trine.policy", Policy, "policy", str(path), "--policy")
    assert str(caught.value) == f"{path}: the policy Mine without key; expected a method key(self, view)"


def test_two_runs_do_not_share_what_a_policy_remembers() -> None:
    """A policy that learns starts afresh in every run."""
    one, other = (resolve("gittins", "packed", {}).policy for _ in range(2))
    one.finished(FinishedJob(Job("a", 0.0, 1, 1.0), 100.0, 100.0))
    assert one != other


def test_settings_reach_whoever_knows_them() -> None:
    pairs = parse_pairs(["queue_limits_gpu_s=10,20", "round_s=60", "compat.wall_attained=true"])
    settings = resolve("tiresias", "packed-sticky", pairs)
    assert vars(settings.policy)["queue_limits_gpu_s"] == (10.0, 20.0)
    assert settings.run.round_s == 60 and settings.compat.wall_attained
    with pytest.raises(InputError, match="did you mean 'queue_limits_gpu_s'"):
        resolve("tiresias", "packed", {"queue_limit_gpu_s": "10"})
    with pytest.raises(InputError, match="unknown key"):
        resolve("fifo", "packed", {"queue_limits_gpu_s": "10"})
