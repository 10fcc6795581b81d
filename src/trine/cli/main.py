"""The ``trine`` command: puts the sub-commands together and reports errors as one sentence and an exit code.

Exit 0 ok, 1 failed, 2 wrong usage or input, 130 interrupted. Nothing heavy is imported before it is needed.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from types import FrameType
from typing import Annotated

import typer

from trine.cli.lazy import LazyGroup

app = typer.Typer(
    name="trine",
    cls=LazyGroup,
    help="A GPU-cluster scheduler and simulator for machine-learning jobs.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["--help", "-h"]},
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        from trine import __version__

        typer.echo(f"trine {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """A GPU-cluster scheduler and simulator for machine-learning jobs."""


class _Interrupted(BaseException):
    """Ctrl-C, under a name that nothing on the way up catches or replaces."""


def _interrupt(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001
    raise _Interrupted


def main() -> None:
    """Entry point of the ``trine`` command."""
    from trine.core.errors import InputError, TrineError

    signal.signal(signal.SIGINT, _interrupt)
    _bear_any_letter()
    try:
        app()
    except (_Interrupted, Exception) as error:
        if _comes_from_interrupt(error):
            _fail("interrupted; nothing was written", 130)
        if isinstance(error, TrineError):
            _fail(str(error), 2 if isinstance(error, InputError) else 1)
        if not isinstance(error, BrokenPipeError):
            raise
        # The reader of our output left (as `head` does): not an error, but nothing more can be written.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _comes_from_interrupt(error: BaseException | None) -> bool:
    """Python wraps what is raised inside ``__set_name__``, as when an interrupt meets the import of a class."""
    while error is not None and not isinstance(error, _Interrupted):
        error = error.__cause__ or error.__context__
    return error is not None


def _bear_any_letter() -> None:
    """Where the terminal's encoding lacks a letter, a question mark is better than no answer."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _fail(sentence: str, code: int) -> None:
    print(f"trine: {sentence}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
