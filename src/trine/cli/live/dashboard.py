"""``trine dashboard``: open the daemon's pages in a browser, logged in as the caller; or end such logins."""

from __future__ import annotations

from typing import Annotated

import typer

from trine.cli.live.verb import State, connected, fail, say, verb


@verb
def dashboard(
    log_out: Annotated[
        bool, typer.Option("--log-out", help="End all your sessions in browsers, wherever they are.")
    ] = False,
    print_only: Annotated[bool, typer.Option("--print", help="Print the address and a code, open nothing.")] = False,
    state: State = None,
) -> None:
    """Open the dashboard in a browser, logged in.

    Where there is no browser, print its address and a code to log in with.
    """
    from trine.cli.browser import how_to_log_in, open_logged_in

    with connected(state) as client:
        if log_out:
            say(f"trine: sessions ended: {client.end_sessions()}")
            return
        url = client.dashboard_url()
        if not url:
            fail("the daemon does not say where it listens; it may be of an older version", 1)
        code = client.login_code()
    if print_only or not open_logged_in(url, code):
        typer.echo(how_to_log_in(url, code))
    else:
        say(f"trine: {url}/ui opens in your browser")
