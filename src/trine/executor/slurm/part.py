"""A part of an attempt as a task of a Slurm step: as every part, but it ends with the daemon of its step. Slurm takes a
node without that daemon for empty, and gives its GPUs on. Standard library only."""

from __future__ import annotations

from trine.executor.attempt import part
from trine.executor.attempt.processes import die_with_parent

TYPE_CHECKING = False  # loading typing would take longer than all of this
if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """As ``attempt.part.main``; the ranks end with this process."""
    die_with_parent()
    return part.main(arguments)
