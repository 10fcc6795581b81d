"""``trine token``: tokens of users, kept in the state directory of a daemon on this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from trine.cli.live.verb import Form, Output, State, print_json, verb

app = typer.Typer(
    help="Give users tokens for the daemon, list them, take them back.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.command()
@verb
def add(
    user: Annotated[str, typer.Argument(help="User the token stands for.", show_default=False)],
    state: State = None,
    output: Output = Form.TABLE,
) -> None:
    """Make a token for a user and print it; it is shown only now."""
    from trine.server.auth import add_user_token

    token = add_user_token(_directory(state), user)
    if output is Form.JSON:
        print_json({"user": user, "token": token})
    else:
        typer.echo(token)


@app.command("list")
@verb
def list_tokens(state: State = None, output: Output = Form.TABLE) -> None:
    """List the users' tokens by id; the tokens themselves are not kept."""
    from trine.server.auth import user_tokens

    found = user_tokens(_directory(state))
    if output is Form.JSON:
        print_json([{"id": token.id, "user": token.user} for token in found])
    else:
        from trine.cli.tables import print_columns

        print_columns(("id", "user"), [(token.id, token.user) for token in found])


@app.command()
@verb
def revoke(
    user_or_id: Annotated[str, typer.Argument(metavar="USER|ID", help="All tokens of a user, or one by its id.")],
    state: State = None,
    output: Output = Form.TABLE,
) -> None:
    """Take tokens back: the daemon refuses them from now on."""
    from trine.server.auth import revoke_user_tokens

    gone = revoke_user_tokens(_directory(state), user_or_id)
    if output is Form.JSON:
        print_json([{"id": token.id, "user": token.user} for token in gone])
    else:
        typer.echo("\n".join(f"{token.id} {token.user} revoked" for token in gone))


def _directory(state: Path | None) -> Path:
    from trine.client.address import state_directory
    from trine.core.errors import InputError

    if state is None and os.environ.get("TRINE_API"):
        raise InputError(
            "token",
            "TRINE_API, which names a daemon but not its state directory, where tokens are managed",
            "--state DIR on the daemon's machine, as the user that runs it, or TRINE_API not set",
        )
    found = state_directory(state)
    if not (found / "token").exists():
        raise InputError(str(found), "no daemon ever ran here", "the state directory of a daemon on this machine")
    return found
