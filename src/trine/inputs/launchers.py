"""Recognises programs that start the processes of a training themselves: torchrun, accelerate, deepspeed.

One of these per node is right; one per GPU would run a whole training on every GPU. Only the command is looked at, no
file is opened.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import dropwhile

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
