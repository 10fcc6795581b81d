"""What follows ``--`` on a command line: the command of a job, for the verbs that submit one."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

_COMMAND = "trine.trailing_command"


class TrailingCommand(TyperCommand):
    """Keeps what follows ``--`` apart: to the usual parser it would look like files or other arguments."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta[_COMMAND] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)


def trailing_command(ctx: Any) -> list[str] | None:
    """The words after ``--``; ``None`` where there is no ``--``."""
    from trine.core.errors import InputError

    command: list[str] | None = ctx.meta.get(_COMMAND)
    if command is not None and not command:
        raise InputError(ctx.info_name, "nothing after --", "a command")
    return command
