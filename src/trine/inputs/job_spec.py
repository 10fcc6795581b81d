"""The job specification: what a user writes in YAML, gives on the command line or posts as JSON, checked once.

``JobSpec`` is the checked value and its JSON form; ``read_job_file`` and ``parse_jobs`` turn text into it. What a job
may do (queues, quotas, users) is decided in ``server.access``, whether it can ever run by the scheduler.
"""

from __future__ import annotations

import itertools
import json
import math
import os.path
import re
import shlex
import unicodedata
from collections import abc
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)

from trine.core.errors import InputError, nearest
from trine.inputs.launchers import launcher_of
from trine.inputs.text_file import read_text
from trine.inputs.yaml_reader import Mapping, Value, parse_mapping

MAX_GPUS, MAX_NODES = 100_000, 10_000
MAX_ARGUMENTS, MAX_COMMAND_BYTES = 4_096, 64_000
MAX_ENV_ENTRIES, MAX_ENV_BYTES = 128, 64_000
MAX_PATH_LENGTH = 1_024
MAX_JOBS = 1_000
"""Jobs in one file or request."""
MAX_FILE_BYTES = 4_000_000
SHORTEST_S, LONGEST_S = 1e-3, 1e6 * 86_400
"""Durations that are taken seriously."""
MAX_STEPS = 1e15
SLOWEST, FASTEST = 1e-9, 1e12
"""Steps per second that ``steps`` and ``max_runtime`` may imply: policies divide by them and multiply with them."""
MAX_PRIORITY, MAX_GRACE_S, MAX_RETRIES = 1e6, 3_600.0, 1_000

TIERS = ("node", "rack", "network")
MAX_NAME_LENGTH = 128
_RUNS_SCRIPTS = r"python[0-9.]*|bash|sh|dash|zsh|torchrun|accelerate|deepspeed"
"""Programs of which the name says nothing about a job."""
_NAME_MARKS = frozenset("_ .,:+=@()#-")
"""What a name may hold besides the letters and digits of any language."""
_LABEL = r"^([A-Za-z0-9_][A-Za-z0-9_.:+-]{0,63})?$"
_TYPE = r"^[A-Za-z0-9_][A-Za-z0-9_.:+ -]{0,63}$"
_USER = r"^([A-Za-z_][A-Za-z0-9_.-]{0,31})?$"
_PATH = r"^(/(?!\.\.(/|$))[^/\x00-\x1f\x7f]*)+$"
_DURATION = r"^([1-9][0-9]{0,5}(\.[0-9]{1,3})?|0\.[0-9]{0,2}[1-9]) ?[smhd]$"
_CLOCK = r"^([0-9]{1,3}-([01]?[0-9]|2[0-3])(:[0-5][0-9]){0,2}|[0-9]{1,6}(:[0-5][0-9]){2})$"
"""Durations as Slurm writes them: ``H:MM:SS``, ``D-HH``, ``D-HH:MM``, ``D-HH:MM:SS``.

Slurm's ``M:SS`` is left out on purpose: ``2:00`` would be two minutes to it and two hours to most readers."""
_ENV_NAME = r"^[A-Za-z_][A-Za-z0-9_]{0,127}$"
_SHELL_WORDS = frozenset(["&&", "||", "|", ";", "&", ">", ">>", "<", "<<", "2>", "2>&1", "&>"])
_UNIT_S = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_SET_BY_TRINE = re.compile("(LOCAL_|GROUP_)?RANK|(LOCAL_)?WORLD_SIZE|MASTER_(ADDR|PORT)|CUDA_VISIBLE_DEVICES|TRINE_.*")

EXPECTED = {
    "name": "up to 128 letters of any language, digits, spaces and . , : + = @ ( ) # _ -, "
    "beginning with a letter or digit",
    "run": "a command: one text such as 'python train.py --lr 0.1', or a list of arguments; at most 64 kB in all",
    "workdir": "the absolute path of a directory, without '..'",
    "env": "at most 128 variables with text values, 64 kB in all; RANK, MASTER_ADDR, CUDA_VISIBLE_DEVICES, TRINE_... "
    "are set by trine",
    "gpus": f"a whole number of GPUs from 1 to {MAX_GPUS:,} or {{count: 4, types: any}} or {{count: 4, types: [a100]}}",
    "nodes": "the number of nodes to spread the GPUs over evenly, such as 2 for 8 GPUs as 4 + 4",
    "ranks": "node (one process per node, for all of its GPUs there) or gpu (one process per GPU, for programs that "
    "start no others)",
    "model": "the name of a model: up to 128 letters of any language, digits, spaces and . , : + = @ ( ) # _ -",
    "class": "an application class: up to 64 letters, digits and . : + _ -, such as A",
    "queue": "the name of a queue: up to 64 letters, digits and . : + _ -",
    "user": "a user name: up to 32 letters, digits and . _ -, beginning with a letter",
    "priority": "a number from -1,000,000 to 1,000,000; larger goes first",
    "checkpoint": "a mapping such as {dir: /data/checkpoints, grace_s: 30}",
    "checkpoint.dir": "the absolute path of a directory, without '..'",
    "checkpoint.grace_s": "seconds from 0 to 3,600 between the signal to stop and the kill",
    "topology": "a mapping such as {preferred: node, required: rack, max_wait_s: 600}, preferred within required",
    "topology.required": "node, rack or network",
    "topology.preferred": "node, rack or network",
    "topology.max_wait_s": "seconds to wait for the preferred tier, 0 or more",
    "deadline": "seconds from submission (1 ms or more), a duration such as 6h or 6:00:00, or "
    "a time with its zone such as 2030-01-31T18:00:00Z",
    "max_runtime": "seconds, or a duration such as 90m, 2h, 1.5d, 2:00:00 (H:MM:SS) or 1-12:00:00 (D-HH:MM:SS); "
    "from 1 ms to 1,000,000 days",
    "steps": "a number of training steps from 1 to 1e15; with max_runtime, from 1e-9 to 1e12 steps per second",
    "retries": f"how often a job that fails by itself is started again, after a growing pause: 0 to {MAX_RETRIES:,}",
    "preemptible": "true or false; false: once started, it is not stopped for other jobs",
    "min_run": "seconds, or a duration such as 10m; how long a start runs before it may be stopped for other jobs",
}
"""What each key takes, for error sentences; also the descriptions in the API's schema."""
_WHOLE = (
    f'a job such as {{"run": "python train.py", "gpus": 1}}, or a list of at most {MAX_JOBS:,}, '
    'or {"jobs": [such a list], "env": {variables of all}}'
)
_TEXTS = re.compile("name|run|workdir|ranks|model|class|queue|user|gpus.types|checkpoint.dir|topology.(requ|pref).*")


def _about(key: str) -> str:
    return EXPECTED[key][0].upper() + EXPECTED[key][1:] + "."


def _split(run: Any) -> Any:
    """A command line as arguments; quotes group words, nothing is expanded and no shell is involved."""
    if not isinstance(run, str):
        return tuple(run) if isinstance(run, list) else run
    if len(run) > MAX_COMMAND_BYTES:
        raise ValueError(f"{len(run):,} characters")
    try:
        words = shlex.split(run)
    except ValueError:
        raise ValueError(f"a quote that is not closed in {_shown(run)}") from None
    shell = ["a line break"] if "\n" in run.strip() else [f"{word!r}" for word in words if word in _SHELL_WORDS]
    if shell:
        raise ValueError(f"{shell[0]}, which only a shell understands (write run: [bash, -c, '...'] to use one)")
    return tuple(words)


def _check_command(run: tuple[str, ...]) -> tuple[str, ...]:
    if not run or not run[0].strip():
        raise ValueError("no command")
    if sum(len(word.encode()) + 1 for word in run) > MAX_COMMAND_BYTES:
        raise ValueError("more than 64 kB")
    if any("\0" in word for word in run):
        raise ValueError("a NUL character")
    return run


def is_env_name(name: str) -> bool:
    return re.fullmatch(_ENV_NAME, name) is not None


def is_set_by_trine(name: str) -> bool:
    """Whether trine sets the variable in every process of a job, so that nobody else can."""
    return _SET_BY_TRINE.fullmatch(name) is not None


def env_bytes(env: abc.Mapping[str, str]) -> int:
    """What counts against ``MAX_ENV_BYTES``."""
    return sum(len(key) + len(value.encode()) + 2 for key, value in env.items())


def _check_env(env: dict[str, str]) -> dict[str, str]:
    for key, value in env.items():
        if not is_env_name(key) or is_set_by_trine(key):
            raise ValueError(f"variable {_shown(key)}")
        if "\0" in value:
            raise ValueError(f"a NUL character in variable {key}")
    if env_bytes(env) > MAX_ENV_BYTES:
        raise ValueError("more than 64 kB")
    return env


def _clean_path(path: str) -> str:
    """``path`` without double slashes and dots. ``..`` is refused, not resolved: links could make it mean elsewhere."""
    if not re.fullmatch(_PATH, path):
        raise ValueError(_shown(path))
    return "/" + os.path.normpath(path).lstrip("/")


def _clean_name(name: str) -> str:
    """``name`` in its composed form, so that names that look the same are the same.

    What cannot be seen or moves the text around it (control characters, reversed writing, line ends) is refused."""
    name = unicodedata.normalize("NFC", name)
    if len(name) > MAX_NAME_LENGTH:
        raise ValueError(f"{len(name)} characters")
    if not all(map(_in_name, name)) or (name and not _begins_name(name[0])):
        raise ValueError(_shown(name))
    return name


def _in_name(letter: str) -> bool:
    return letter in _NAME_MARKS or unicodedata.category(letter)[0] in "LMN"


def _begins_name(letter: str) -> bool:
    return letter == "_" or unicodedata.category(letter)[0] in "LN"


def _named_after(command: Sequence[str]) -> str:
    """The program, or the script that it runs: a queue in which every job is called python helps nobody."""
    program = command[0].rpartition("/")[2]
    if not re.fullmatch(_RUNS_SCRIPTS, program):
        return command[0]
    return next((word for word in command[1:] if re.fullmatch(r"[^\s=]+\.(py|sh)", word)), command[0])


def _name_of(program: str) -> str:
    """The program's name with what no name may hold left out."""
    text = "".join(letter if _in_name(letter) else "_" for letter in unicodedata.normalize("NFC", program))
    first = next((i for i, letter in enumerate(text) if _begins_name(letter)), len(text))
    return text[first:][:MAX_NAME_LENGTH] or "job"


def _seconds(value: Any) -> float:
    """Seconds of a number or of text such as ``90m`` or ``1:30:00``."""
    if isinstance(value, str) and re.fullmatch(_DURATION, value):
        value = float(value[:-1]) * _UNIT_S[value[-1]]
    elif isinstance(value, str) and re.fullmatch(_CLOCK, value):
        value = _clock_seconds(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not SHORTEST_S <= value <= LONGEST_S:
        raise ValueError(_shown(value))
    return float(value)


def _clock_seconds(text: str) -> float:
    days, dash, clock = text.rpartition("-")
    parts = [float(part) for part in clock.split(":")]
    # After a dash the first part is hours, however many follow; without one there are always three.
    hours, minutes, seconds = (*parts, *(0.0,) * (3 - len(parts)))
    return (float(days) * _UNIT_S["d"] if dash else 0.0) + hours * _UNIT_S["h"] + minutes * _UNIT_S["m"] + seconds


def _deadline(value: Any) -> float | datetime:
    if not isinstance(value, str) or re.fullmatch(_DURATION, value) or re.fullmatch(_CLOCK, value):
        return _seconds(value)
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        raise ValueError(_shown(value)) from None
    if at.tzinfo is None:
        raise ValueError(f"a time without a zone, {_shown(value)}")
    return at


def _deadline_text(deadline: float | datetime) -> float | str:
    return deadline.isoformat() if isinstance(deadline, datetime) else deadline


def _whole(value: Any) -> Any:
    """JSON makes no difference between 4 and 4.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _as_count(gpus: Any) -> Any:
    return gpus if isinstance(gpus, dict | bool | str | list) else {"count": gpus}


def _no_types(types: Any) -> Any:
    if types == "any":
        return ()
    return tuple(types) if isinstance(types, list) else types


_SECONDS_SCHEMA = {"type": "number", "minimum": SHORTEST_S, "maximum": LONGEST_S}
_DURATION_SCHEMA = {"type": "string", "pattern": f"{_DURATION}|{_CLOCK}"}
_TIME_SCHEMA = {"type": "string", "format": "date-time"}
_ENV_SCHEMA = {
    "type": "object",
    "maxProperties": MAX_ENV_ENTRIES,
    "propertyNames": {"pattern": _ENV_NAME},
    "additionalProperties": {"type": "string", "maxLength": MAX_ENV_BYTES},
}
_RUN_SCHEMA = {
    "anyOf": [
        {"type": "string", "minLength": 1, "maxLength": MAX_COMMAND_BYTES},
        {"type": "array", "minItems": 1, "maxItems": MAX_ARGUMENTS, "items": {"type": "string"}},
    ]
}

_Name = Annotated[str, AfterValidator(_clean_name), WithJsonSchema({"type": "string", "maxLength": MAX_NAME_LENGTH})]
_Label = Annotated[str, StringConstraints(pattern=_LABEL)]
_User = Annotated[str, StringConstraints(pattern=_USER)]
_GpuCount = Annotated[int, Field(ge=1, le=MAX_GPUS), BeforeValidator(_whole)]
_RetryCount = Annotated[int, Field(ge=0, le=MAX_RETRIES), BeforeValidator(_whole)]
_NodeCount = Annotated[int, Field(ge=1, le=MAX_NODES), BeforeValidator(_whole)]
_Tier = Literal["node", "rack", "network"]
_Directory = Annotated[
    str,
    StringConstraints(max_length=MAX_PATH_LENGTH),
    AfterValidator(_clean_path),
    WithJsonSchema({"type": "string", "maxLength": MAX_PATH_LENGTH, "pattern": _PATH}),
]
_Command = Annotated[
    tuple[str, ...],
    Field(max_length=MAX_ARGUMENTS),
    BeforeValidator(_split),
    AfterValidator(_check_command),
    WithJsonSchema(_RUN_SCHEMA),
]
_Env = Annotated[
    dict[str, str], Field(max_length=MAX_ENV_ENTRIES), AfterValidator(_check_env), WithJsonSchema(_ENV_SCHEMA)
]
_Duration = Annotated[float, PlainValidator(_seconds), WithJsonSchema({"anyOf": [_SECONDS_SCHEMA, _DURATION_SCHEMA]})]
_Deadline = Annotated[
    float | datetime,
    PlainValidator(_deadline),
    PlainSerializer(_deadline_text, return_type=Any),
    WithJsonSchema({"anyOf": [_SECONDS_SCHEMA, _DURATION_SCHEMA, _TIME_SCHEMA]}),
]
_Types = Annotated[
    tuple[Annotated[str, StringConstraints(pattern=_TYPE)], ...],
    Field(max_length=64),
    BeforeValidator(_no_types),
    WithJsonSchema(
        {"anyOf": [{"const": "any"}, {"type": "array", "maxItems": 64, "items": {"type": "string", "pattern": _TYPE}}]}
    ),
]


class _Frozen(BaseModel):
    """Strict: no key that is not known, no text for a number, no NaN."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, hide_input_in_errors=True)


class Gpus(_Frozen):
    """How many GPUs, and of which types; no types means any."""

    count: _GpuCount
    types: _Types = ()


class Checkpoint(_Frozen):
    """Where the job keeps its checkpoints (by default a directory trine makes), and the time it has to write one."""

    dir: _Directory | None = Field(default=None, description=_about("checkpoint.dir"))
    grace_s: float = Field(default=30.0, ge=0, le=MAX_GRACE_S, description=_about("checkpoint.grace_s"))


class Topology(_Frozen):
    """How close the GPUs must be, and how close they should be if that takes no longer than ``max_wait_s``."""

    required: _Tier | None = Field(default=None, description=_about("topology.required"))
    preferred: _Tier | None = Field(default=None, description=_about("topology.preferred"))
    max_wait_s: float | None = Field(default=None, ge=0, le=LONGEST_S, description=_about("topology.max_wait_s"))

    @field_validator("preferred")
    @classmethod
    def _not_wider(cls, preferred: _Tier | None, info: ValidationInfo) -> _Tier | None:
        required = info.data.get("required")
        if preferred and required and TIERS.index(preferred) > TIERS.index(required):
            raise ValueError(f"preferred {preferred}, which is wider than required {required}")
        return preferred


_ONE_GPU, _ANY_TOPOLOGY, _NO_CHECKPOINT = Gpus(count=1), Topology(), Checkpoint()


_ON_RECORD = {"on record": True}
"""Context of checks on a job that was accepted already."""


class JobSpec(_Frozen):
    """A job as its user describes it. Only ``run`` is needed; everything else has a default."""

    run: _Command = Field(description=_about("run"))
    name: _Name = Field(default="", validate_default=True, description=_about("name"))
    """Never empty after checking: by default that of the script or program it runs."""
    workdir: _Directory | None = Field(default=None, description=_about("workdir"))
    env: _Env = Field(default_factory=dict, description=_about("env"))
    gpus: Annotated[Gpus, BeforeValidator(_as_count)] = Field(
        default_factory=lambda: _ONE_GPU, description=_about("gpus")
    )
    nodes: _NodeCount | None = Field(default=None, description=_about("nodes"))
    """The gang spans exactly this many nodes, with equally many GPUs on each; ``None`` leaves it to the placement."""
    ranks: Literal["node", "gpu"] = Field(default="node", description=_about("ranks"))
    model: _Name = Field(default="", description=_about("model"))
    app_class: _Label = Field(default="", alias="class", description=_about("class"))
    queue: _Label = Field(default="", description=_about("queue"))
    """Empty means the default queue."""
    user: _User = Field(default="", description=_about("user"))
    """Empty means the caller."""
    priority: float = Field(default=0.0, ge=-MAX_PRIORITY, le=MAX_PRIORITY, description=_about("priority"))
    checkpoint: Checkpoint = Field(default_factory=lambda: _NO_CHECKPOINT, description=_about("checkpoint"))
    topology: Topology = Field(default_factory=lambda: _ANY_TOPOLOGY, description=_about("topology"))
    deadline: _Deadline | None = Field(default=None, description=_about("deadline"))
    """Seconds from submission, or a point in time."""
    max_runtime: _Duration | None = Field(default=None, description=_about("max_runtime"))
    """Seconds."""
    steps: float | None = Field(default=None, ge=1, le=MAX_STEPS, description=_about("steps"))
    retries: _RetryCount | None = Field(default=None, description=_about("retries"))
    """``None`` leaves it to the queue; once admitted it means 0."""
    preemptible: bool = Field(default=True, description=_about("preemptible"))
    min_run: _Duration | None = Field(default=None, description=_about("min_run"))
    """Seconds."""

    @field_validator("name")
    @classmethod
    def _named(cls, name: str, info: ValidationInfo) -> str:
        if name or "run" not in info.data:
            return name
        return _name_of(_named_after(info.data["run"]).rpartition("/")[2])

    @field_validator("nodes")
    @classmethod
    def _even(cls, nodes: int | None, info: ValidationInfo) -> int | None:
        gpus = info.data.get("gpus")
        if nodes and gpus and gpus.count % nodes:
            raise ValueError(f"{nodes} nodes for {gpus.count} GPUs")
        return nodes

    @field_validator("ranks")
    @classmethod
    def _one_training(cls, ranks: Literal["node", "gpu"], info: ValidationInfo) -> Literal["node", "gpu"]:
        run, gpus, nodes = (info.data.get(key) for key in ("run", "gpus", "nodes"))
        if ranks == "node" or not run or not gpus or gpus.count <= (nodes or 1) or info.context is _ON_RECORD:
            return ranks
        if launcher := launcher_of(run):
            raise ValueError(f"gpu for {launcher}, which starts a process per GPU itself: a whole training per GPU")
        return ranks

    @field_validator("steps")
    @classmethod
    def _possible(cls, steps: float | None, info: ValidationInfo) -> float | None:
        limit_s = info.data.get("max_runtime")
        if steps and limit_s and not SLOWEST * limit_s <= steps <= FASTEST * limit_s:
            raise ValueError(f"{steps:g} steps in {limit_s:g} s")
        return steps

    def deadline_s(self, submitted_s: float) -> float | None:
        """The deadline as Unix time, for a job submitted at ``submitted_s``."""
        if isinstance(self.deadline, datetime):
            return self.deadline.timestamp()
        return None if self.deadline is None else submitted_s + self.deadline

    def as_json(self) -> str:
        """The form that ``parse_jobs`` reads back to the same value."""
        return self.model_dump_json(by_alias=True, exclude_defaults=True)


_KEYS = {
    "": tuple(field.alias or name for name, field in JobSpec.model_fields.items()),
    "gpus": tuple(Gpus.model_fields),
    "checkpoint": tuple(Checkpoint.model_fields),
    "topology": tuple(Topology.model_fields),
}
_MANY = TypeAdapter(Annotated[list[JobSpec], Field(min_length=1, max_length=MAX_JOBS)])


def parse_jobs(body: bytes | str, where: str = "request") -> list[JobSpec]:
    """The jobs in JSON text: one object, a list of at most ``MAX_JOBS``, or ``{"jobs": [...], "env": {...}}``."""
    start = body[:64] if isinstance(body, str) else body[:64].decode("latin-1")
    if re.match(r'\s*{\s*"jobs"\s*:', start):
        body = _with_common_env(body, where)
    try:
        if body[:64].lstrip()[:1] in (b"[", "["):
            return _MANY.validate_json(body)
        return [JobSpec.model_validate_json(body)]
    except ValidationError as error:
        raise _first_error(error, where) from None


def _with_common_env(body: bytes | str, where: str) -> str:
    """The list of jobs in ``{"jobs": [...], "env": {...}}``, each with the common variables below its own.

    So that a sweep of a thousand jobs does not carry its environment a thousand times.
    """
    try:
        request = json.loads(body)
        jobs, env = request.pop("jobs"), request.pop("env", {})
    except (ValueError, RecursionError) as error:
        raise InputError(where, f"not valid JSON ({type(error).__name__})", _WHOLE) from None
    if request or not isinstance(jobs, list) or not isinstance(env, dict):
        found = f"unknown key {_shown(min(request))}" if request else "no list of jobs with a mapping env"
        raise InputError(where, found, _WHOLE)
    return json.dumps([_with_env(job, env) for job in jobs])


def _with_env(job: Any, env: dict[str, Any]) -> Any:
    own = job.get("env", {}) if isinstance(job, dict) else None
    return {**job, "env": {**env, **own}} if isinstance(own, dict) else job


_RANGES = {
    "priority": (-MAX_PRIORITY, MAX_PRIORITY),
    "deadline": (SHORTEST_S, LONGEST_S),
    "max_runtime": (SHORTEST_S, LONGEST_S),
    "steps": (1.0, MAX_STEPS),
    "retries": (0, MAX_RETRIES),
    "min_run": (SHORTEST_S, LONGEST_S),
    "grace_s": (0.0, MAX_GRACE_S),
    "max_wait_s": (0.0, LONGEST_S),
}


def recorded_job(body: dict[str, Any]) -> JobSpec:
    """A job that was accepted once, in plain values. JSON knows no tuples, so types are not taken strictly.

    Versions before this one accepted numbers that are refused now. Such a job must not keep the daemon from starting,
    so its numbers are moved to the nearest ones that are accepted.
    """
    try:
        return JobSpec.model_validate(body, strict=False, context=_ON_RECORD)
    except ValidationError:
        return JobSpec.model_validate(_in_range(body), strict=False, context=_ON_RECORD)


def _in_range(body: dict[str, Any]) -> dict[str, Any]:
    moved = {}
    for key, value in body.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if key in _RANGES and is_number and not math.isnan(value):
            low, high = _RANGES[key]
            moved[key] = min(max(value, low), high)
        elif key not in _RANGES or not is_number:
            moved[key] = _in_range(value) if key in ("checkpoint", "topology") else value
    limit_s, steps = moved.get("max_runtime"), moved.get("steps")
    if limit_s is not None and steps is not None:
        # The time limit is enforced, the number of steps is information: the latter gives way.
        moved["steps"] = min(max(steps, SLOWEST * limit_s), FASTEST * limit_s)
    return moved


def from_command(command: Sequence[str], gpus: int = 1, **keys: Any) -> JobSpec:
    """The job that runs ``command`` (arguments, no shell); ``keys`` as in a job file, ``None`` counts as absent."""
    given = {"run": list(command), "gpus": gpus, **{key: value for key, value in keys.items() if value is not None}}
    return parse_jobs(json.dumps(given), "command line")[0]


def read_job_file(path: str | Path, workdir: str = "") -> list[JobSpec]:
    """The jobs of a YAML file, one per document.

    A relative ``workdir`` or checkpoint directory is taken from the file's directory; ``workdir`` is for jobs without.
    """
    text = read_text(path, "a job file", MAX_FILE_BYTES)
    documents = _documents(text)
    if len(documents) > MAX_JOBS:
        raise InputError(str(path), f"{len(documents):,} documents", f"at most {MAX_JOBS:,} jobs in a file")
    return [_job(parse_mapping(document, str(path), "a job file"), Path(path), workdir) for document in documents]


def _documents(text: str) -> list[str]:
    """The YAML documents of ``text``, each after as many empty lines as keep its line numbers true."""
    starts = [match.start() for match in re.finditer(r"^---(?=\s|$)", text, re.MULTILINE)]
    bounds = [0, *starts, len(text)]
    parts = [(text.count("\n", 0, start), text[start:end]) for start, end in itertools.pairwise(bounds)]
    filled = [(line, part) for line, part in parts if re.search(r"^(?!---\s*$)\s*[^#\s]", part, re.MULTILINE)]
    return ["\n" * line + part for line, part in filled] or [text]


def _job(top: Mapping, file: Path, workdir: str) -> JobSpec:
    plain = _plain(top, "")
    top.finish()
    folder = file.parent.absolute()
    for keys in (plain, plain.get("checkpoint", {})):
        for key in {"workdir", "dir"} & keys.keys():
            keys[key] = os.path.normpath(folder / keys[key])
    if workdir:
        plain.setdefault("workdir", workdir)
    try:
        return JobSpec.model_validate_json(json.dumps(plain))
    except ValidationError as error:
        found = _first_error(error, top.where)
        raise InputError(_line_of(top, found), found.found, found.expected, found.field) from None


def _plain(keys: Mapping, path: str) -> dict[str, Any]:
    """The values of known keys as JSON has them. Nothing else is opened, so aliases cannot blow a file up."""
    read: dict[str, Any] = {}
    for key in _KEYS[path]:
        if value := keys.get(key):
            full = f"{path}.{key}" if path else key
            read[key] = _plain(value.mapping(), full) if full in _KEYS and value.is_mapping else _value(value, full)
    return read


def _value(value: Value, path: str) -> Any:
    if path == "env" and value.is_mapping:
        return {name: _word(entry) for name, entry in value.mapping().values()}
    if path in ("run", "gpus.types") and not value.is_scalar and not value.is_mapping:
        return [_word(entry) for entry in value.list()[: MAX_ARGUMENTS + 1]]
    if not value.is_scalar or path in ("checkpoint", "topology", "env"):
        raise value.wrong(EXPECTED[path])
    return value.text() if _TEXTS.fullmatch(path) else value.plain()


def _word(value: Value) -> str:
    """Text as written; numbers need no quotes, and text may be empty."""
    return "" if value.is_scalar and value.plain() == "" else value.text()


def _line_of(top: Mapping, error: InputError) -> str:
    keys = error.field.split(".")
    try:
        below = top.value(keys[0]).mapping() if len(keys) > 1 else top
        return below.error("", "", keys[-1]).where
    except InputError:
        return top.error("", "", keys[0]).where


def _first_error(error: ValidationError, where: str) -> InputError:
    """The first thing wrong, in one sentence; misspelt keys come first, as they explain missing ones."""
    errors = error.errors(include_url=False)
    first = next((entry for entry in errors if entry["type"] == "extra_forbidden"), errors[0])
    place = "".join(f"[{part}]" for part in first["loc"][:1] if isinstance(part, int))
    keys = [str(part) for part in first["loc"] if not isinstance(part, int)]
    if first["type"] == "extra_forbidden":
        return _unknown_key(where + place, keys)
    if not keys:
        return InputError(where + place, _found(first), _WHOLE)
    plain = len(keys) > 1 and keys[:2] != ["gpus", "count"] and re.fullmatch(_ENV_NAME, keys[1])
    field = ".".join(keys[:2]) if plain else keys[0]
    return InputError(where + place, _found(first), EXPECTED.get(field, EXPECTED[keys[0]]), field)


def _unknown_key(where: str, keys: list[str]) -> InputError:
    known = _KEYS[".".join(keys[:-1])]
    found = f"unknown key {_shown(keys[-1])}{nearest(keys[-1], known)}"
    return InputError(where, found, f"one of {', '.join(sorted(known))}", ".".join(keys[:-1]))


def _found(error: Any) -> str:
    kind = error["type"]
    if kind == "missing":
        return "found nothing"
    if kind == "json_invalid":
        return f"not valid JSON ({error['ctx']['error']})"
    if kind == "value_error":
        return f"found {error['ctx']['error']}"
    if kind in ("too_long", "too_short"):
        return f"found {error['ctx']['actual_length']} entries"
    return f"found {_shown(error['input'])}"


def _shown(value: object) -> str:
    """A value in a sentence: short, and without control characters."""
    if value is None:
        return "nothing"
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    text = ascii(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."
