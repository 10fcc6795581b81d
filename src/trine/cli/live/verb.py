"""What every live verb shares: its options, how it reaches the daemon, how it ends. Prints no tables."""

from __future__ import annotations

import contextlib
import functools
import re
import signal
import sys
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, ParamSpec

import typer

if TYPE_CHECKING:
    from trine.client import Client

P = ParamSpec("P")


class Form(StrEnum):
    """How answers are printed."""

    TABLE = "table"
    JSON = "json"


State = Annotated[
    Path | None,
    typer.Option("--state", metavar="DIR", help="State directory of the daemon.  [default: TRINE_STATE or the user's]"),
]
Output = Annotated[Form, typer.Option("--output", "-o", help="For people, or one JSON value.")]


def _checked(given: Any) -> Any:
    """A name with a space, or the words of a message that was taken for an id, never get as far as the daemon."""
    from trine.core.errors import InputError

    for text in given if isinstance(given, list) else [given]:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", text):
            raise InputError("JOB", repr(text), "the id of a job, which `trine queue` lists")
    return given


JobId = Annotated[
    str, typer.Argument(metavar="JOB", help="Id of a job, as submit printed it.", show_default=False, callback=_checked)
]
JobIds = Annotated[
    list[str], typer.Argument(metavar="JOB...", help="Ids of jobs.", show_default=False, callback=_checked)
]


def verb(run: Callable[P, None]) -> Callable[P, None]:
    """Ctrl-C ends with one word and status 130; a request that is wrong in itself with status 2."""

    @functools.wraps(run)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        from trine.client.errors import RefusedError

        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            run(*args, **kwargs)
        except KeyboardInterrupt:
            fail("interrupted", 130)
        except RefusedError as error:
            fail(str(error), 2 if error.usage else 1)

    return wrapped


@contextlib.contextmanager
def unaffected(*jobs: str) -> Iterator[None]:
    """Ctrl-C ends what looks at jobs, and says that it does not end them: beside a shell that is not clear."""
    try:
        yield
    except KeyboardInterrupt:
        one = len(jobs) == 1
        fail(f"interrupted; {'job' if one else 'jobs'} {', '.join(jobs)} {'is' if one else 'are'} not affected", 130)


def fail(sentence: str, code: int) -> NoReturn:
    say(f"trine: {sentence}")
    raise typer.Exit(code)


def say(sentence: str) -> None:
    """Talk goes to stderr."""
    print(sentence, file=sys.stderr, flush=True)


def connected(state: Path | None) -> Client:
    from trine.client import Client

    return Client(state=state)


def print_json(value: Any) -> None:
    import json

    typer.echo(json.dumps(value, indent=1))
