"""What each key of a job may hold: limits, patterns and checks of plain values; what a command says about a job.

The models that apply them are in ``job_spec``. Nothing here needs pydantic, which ``trine submit`` has no time to load.
"""

from __future__ import annotations

import os.path
import re
import shlex
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import dropwhile
from typing import Any

from trine.core.errors import shown

MAX_GPUS, MAX_NODES = 100_000, 10_000
MAX_ARGUMENTS, MAX_COMMAND_BYTES = 4_096, 64_000
MAX_ENV_ENTRIES, MAX_ENV_BYTES = 128, 64_000
MAX_PATH_LENGTH = 1_024
MAX_JOBS = 1_000
"""Jobs in one file or request."""
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
LABEL = r"^([A-Za-z0-9_][A-Za-z0-9_.:+-]{0,63})?$"
GPU_TYPE = r"^[A-Za-z0-9_][A-Za-z0-9_.:+ -]{0,63}$"
USER = r"^([A-Za-z_][A-Za-z0-9_.-]{0,31})?$"
PATH = r"^(/(?!\.\.(/|$))[^/\x00-\x1f\x7f]*)+$"
DURATION = r"^([1-9][0-9]{0,5}(\.[0-9]{1,3})?|0\.[0-9]{0,2}[1-9]) ?[smhd]$"
CLOCK = r"^([0-9]{1,3}-([01]?[0-9]|2[0-3])(:[0-5][0-9]){0,2}|[0-9]{1,6}(:[0-5][0-9]){2})$"
"""Durations as Slurm writes them: ``H:MM:SS``, ``D-HH``, ``D-HH:MM``, ``D-HH:MM:SS``.

Slurm's ``M:SS`` is left out on purpose: ``2:00`` would be two minutes to it and two hours to most readers."""
ENV_NAME = r"^[A-Za-z_][A-Za-z0-9_]{0,127}$"
_SHELL_WORDS = frozenset(["&&", "||", "|", ";", "&", ">", ">>", "<", "<<", "2>", "2>&1", "&>"])
_UNIT_S = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_SET_BY_TRINE = re.compile("(LOCAL_|GROUP_)?RANK|(LOCAL_)?WORLD_SIZE|MASTER_(ADDR|PORT)|CUDA_VISIBLE_DEVICES|TRINE_.*")
_WRAPPERS = frozenset(["env", "exec", "nohup", "nice", "time", "stdbuf", "uv", "poetry", "pdm", "pixi", "conda", "run"])
"""Programs that only run what is named behind them; ``uv run``, ``conda run``."""
_MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "accelerate.commands.launch": "accelerate launch",
    "deepspeed": "deepspeed",
    "deepspeed.launcher.runner": "deepspeed",
}
_IN_A_SCRIPT = re.compile(r"(?:^|[\s;&|(/])(torchrun|deepspeed|accelerate\s+launch)(?=\s)")

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
    "after": "ids of jobs that have to end well before it starts, such as 17 or [17, 18]; any:17 if it may end in any "
    "way, failed:17 if it must not end well; also names of jobs before it in the same submission",
    "array": f"indices of up to {MAX_JOBS:,} elements, such as 0-9, 0-30:10 or 1,3,5-7, each a job of its own that "
    "sees its index in TRINE_ARRAY_INDEX; %3 behind it has at most three of them under way at once",
}
"""What each key takes, for error sentences; also the descriptions in the API's schema."""


def split_command(run: Any) -> Any:
    """A command line as arguments; quotes group words, nothing is expanded and no shell is involved."""
    if not isinstance(run, str):
        return tuple(run) if isinstance(run, list) else run
    if len(run) > MAX_COMMAND_BYTES:
        raise ValueError(f"{len(run):,} characters")
    try:
        words = shlex.split(run)
    except ValueError:
        raise ValueError(f"a quote that is not closed in {shown(run)}") from None
    shell = ["a line break"] if "\n" in run.strip() else [f"{word!r}" for word in words if word in _SHELL_WORDS]
    if shell:
        raise ValueError(f"{shell[0]}, which only a shell understands (write run: [bash, -c, '...'] to use one)")
    return tuple(words)


def check_command(run: tuple[str, ...]) -> tuple[str, ...]:
    if not run or not run[0].strip():
        raise ValueError("no command")
    if sum(len(word.encode()) + 1 for word in run) > MAX_COMMAND_BYTES:
        raise ValueError("more than 64 kB")
    if any("\0" in word for word in run):
        raise ValueError("a NUL character")
    return run


def is_env_name(name: str) -> bool:
    return re.fullmatch(ENV_NAME, name) is not None


def is_set_by_trine(name: str) -> bool:
    """Whether trine sets the variable in every process of a job, so that a user cannot."""
    return _SET_BY_TRINE.fullmatch(name) is not None


def env_bytes(env: Mapping[str, str]) -> int:
    """What counts against ``MAX_ENV_BYTES``."""
    return sum(len(key) + len(value.encode()) + 2 for key, value in env.items())


def check_env(env: dict[str, str]) -> dict[str, str]:
    for key, value in env.items():
        if not is_env_name(key) or is_set_by_trine(key):
            raise ValueError(f"variable {shown(key)}")
        if "\0" in value:
            raise ValueError(f"a NUL character in variable {key}")
    if env_bytes(env) > MAX_ENV_BYTES:
        raise ValueError("more than 64 kB")
    return env


def clean_path(path: str) -> str:
    """``path`` without double slashes and dots. ``..`` is refused, not resolved: links could make it mean elsewhere."""
    if not re.fullmatch(PATH, path):
        raise ValueError(shown(path))
    return "/" + os.path.normpath(path).lstrip("/")


def clean_name(name: str) -> str:
    """``name`` in its composed form, so that names that look the same are the same.

    What cannot be seen or moves the text around it (control characters, reversed writing, line ends) is refused."""
    name = unicodedata.normalize("NFC", name)
    if len(name) > MAX_NAME_LENGTH:
        raise ValueError(f"{len(name)} characters")
    if not all(map(_in_name, name)) or (name and not _begins_name(name[0])):
        raise ValueError(shown(name))
    return name


def _in_name(letter: str) -> bool:
    return letter in _NAME_MARKS or unicodedata.category(letter)[0] in "LMN"


def _begins_name(letter: str) -> bool:
    return letter == "_" or unicodedata.category(letter)[0] in "LN"


def named_after(command: Sequence[str]) -> str:
    """The program, or the script that it runs: a queue in which every job is called python says nothing."""
    program = command[0].rpartition("/")[2]
    if not re.fullmatch(_RUNS_SCRIPTS, program):
        return command[0]
    return next((word for word in command[1:] if re.fullmatch(r"[^\s=]+\.(py|sh)", word)), command[0])


def name_of(program: str) -> str:
    """The program's name with what no name may hold left out."""
    text = "".join(letter if _in_name(letter) else "_" for letter in unicodedata.normalize("NFC", program))
    first = next((i for i, letter in enumerate(text) if _begins_name(letter)), len(text))
    return text[first:][:MAX_NAME_LENGTH] or "job"


def launcher_of(command: Sequence[str]) -> str:
    """The name of the launcher that ``command`` is, empty if it is none."""
    words = list(dropwhile(_leads_on, command))
    program, rest = (words[0].rpartition("/")[2], words[1:]) if words else ("", [])
    if program in ("torchrun", "deepspeed"):
        return program
    if program == "accelerate":
        return "accelerate launch" if rest[:1] == ["launch"] else ""
    if program.startswith("python") and "-m" in rest[:-1]:
        return _MODULES.get(rest[rest.index("-m") + 1], "")
    if program in ("sh", "bash", "dash", "zsh") and rest and re.fullmatch(r"-\w*c", rest[0]):
        found = _IN_A_SCRIPT.search(" ".join(rest[1:2]))
        return " ".join(found[1].split()) if found else ""
    return ""


def _leads_on(word: str) -> bool:
    return word.rpartition("/")[2] in _WRAPPERS or word.startswith("-") or "=" in word


def seconds(value: Any) -> float:
    """Seconds of a number or of text such as ``90m`` or ``1:30:00``."""
    if isinstance(value, str) and re.fullmatch(DURATION, value):
        value = float(value[:-1]) * _UNIT_S[value[-1]]
    elif isinstance(value, str) and re.fullmatch(CLOCK, value):
        value = _clock_seconds(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not SHORTEST_S <= value <= LONGEST_S:
        raise ValueError(shown(value))
    return float(value)


def _clock_seconds(text: str) -> float:
    days, dash, clock = text.rpartition("-")
    parts = [float(part) for part in clock.split(":")]
    # After a dash the first part is hours, however many follow; without one there are always three.
    hours, minutes, seconds = (*parts, *(0.0,) * (3 - len(parts)))
    return (float(days) * _UNIT_S["d"] if dash else 0.0) + hours * _UNIT_S["h"] + minutes * _UNIT_S["m"] + seconds


def deadline(value: Any) -> float | datetime:
    if not isinstance(value, str) or re.fullmatch(DURATION, value) or re.fullmatch(CLOCK, value):
        return seconds(value)
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        raise ValueError(shown(value)) from None
    if at.tzinfo is None:
        raise ValueError(f"a time without a zone, {shown(value)}")
    return at


def whole(value: Any) -> Any:
    """JSON makes no difference between 4 and 4.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def as_count(gpus: Any) -> Any:
    return gpus if isinstance(gpus, dict | bool | str | list) else {"count": gpus}


def no_types(types: Any) -> Any:
    if types == "any":
        return ()
    return tuple(types) if isinstance(types, list) else types
