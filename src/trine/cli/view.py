"""``trine view``: the dashboard for the results of simulations, one run or two side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trine.cli.live.verb import say, verb


@verb
def view(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="DIR...", help="What `trine sim run --out DIR` wrote; two are shown side by side."),
    ],
    port: Annotated[int, typer.Option(help="Port of the loopback address to listen on; 0 takes a free one.")] = 0,
    print_only: Annotated[bool, typer.Option("--print", help="Print the address and a code, open nothing.")] = False,
) -> None:
    """Show recorded runs in a browser, one or two side by side.

    The cluster, the queue and every job at any time of the run. Ctrl-C ends it.
    """
    import asyncio
    import signal

    from trine.cli.browser import how_to_log_in, open_logged_in
    from trine.core.errors import InputError
    from trine.server.api.serve import bind
    from trine.server.daemon import configure_logging
    from trine.server.dashboard.view_app import serve_runs

    if len(folders) > 2:
        raise InputError("DIR", f"{len(folders)} directories", "one, or two to compare")

    def ready(url: str, code: str) -> None:
        if print_only or not open_logged_in(url, code):
            typer.echo(how_to_log_in(url, code))
        say(f"trine: showing {' and '.join(map(str, folders))} at {url}/ui; Ctrl-C ends it")

    async def main() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        with bind(port=port) as listener:
            await serve_runs(folders, listener, stop, ready)

    configure_logging(as_json=False)
    asyncio.run(main())
