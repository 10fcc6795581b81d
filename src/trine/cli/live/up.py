"""``trine up``: start the daemon. Everything it does lives in ``trine.server.daemon``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trine.cli.live.verb import State, say


def _tls(cert: Path | None, key: Path | None) -> tuple[Path, Path] | None:
    from trine.core.errors import InputError

    if cert is None and key is None:
        return None
    if cert is None or key is None:
        raise InputError("--tls-cert and --tls-key", "only one of the two", "both, or neither")
    for path in (cert, key):
        if not path.is_file():
            raise InputError(str(path), "no such file", "a PEM file")
    return cert, key


def up(
    state: State = None,
    gpus: Annotated[
        str,
        typer.Option(metavar="SPEC", help="Virtual GPUs, as in 8 or 4x2, or a cluster file.  [default: real GPUs]"),
    ] = "",
    policy: Annotated[str, typer.Option(help="Which jobs go next; see `trine policies`.")] = "fifo-backfill",
    placement: Annotated[str, typer.Option(help="Where jobs go; see `trine placements`.")] = "packed-sticky",
    round_s: Annotated[float, typer.Option("--round", help="Seconds between rounds.")] = 60.0,
    event_driven: Annotated[
        bool, typer.Option("--event-driven", help="Decide a whole round at every arrival and exit.")
    ] = False,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A parameter; see `trine settings`.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="Queues, users and their limits (YAML).")] = None,
    variability: Annotated[str, typer.Option(help="Measured GPUs: a profile (JSON) or a CSV file.")] = "",
    throughputs: Annotated[str, typer.Option(help="Measured throughputs (JSON).")] = "",
    prices: Annotated[
        str,
        typer.Option(
            metavar="SPEC",
            help="Per GPU and hour, for min-cost: v100=2.5,k80=0.5, gavel-spot, or a CSV; constant ones only.",
        ),
    ] = "",
    store: Annotated[
        str, typer.Option(metavar="URL", help="Journal, as postgresql://...  [default: a file in the state directory]")
    ] = "",
    host: Annotated[str, typer.Option(help="Address to listen on; anything but loopback is open to others.")] = (
        "127.0.0.1"
    ),
    port: Annotated[
        int | None, typer.Option(help="Port to listen on; 0 takes a free one.  [default: 7460, or a free one]")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate of the API, to serve it over TLS.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Key of the certificate.")] = None,
    lease_s: Annotated[
        float | None,
        typer.Option("--lease", help="Seconds without a daemon after which jobs are told to stop, and ended."),
    ] = None,
    job_user: Annotated[
        str, typer.Option("--job-user", help="Started as root: run the owner's own jobs as this user.")
    ] = "",
    share_between_users: Annotated[
        bool, typer.Option("--share-between-users", help="Two users' jobs may share GPUs; else only one user's.")
    ] = False,
    truncate: Annotated[
        int | None, typer.Option(help="Give up all journal records after this number (a damaged tail).")
    ] = None,
    keep_jobs: Annotated[
        str | None,
        typer.Option(
            metavar="T",
            help="Remove logs and checkpoints T after a job ends (12h, forever).  [default: 30d, checkpoints never]",
            show_default=False,
        ),
    ] = None,
    keep_ended: Annotated[
        int, typer.Option(metavar="N", min=0, help="Remove them earlier if more than N jobs have ended.")
    ] = 100_000,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Own a journal whose daemon, elsewhere, is gone for good.")
    ] = False,
    engine: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="What runs the jobs: local, this machine; slurm, a cluster. --set engine.KEY=VALUE sets it up.",
        ),
    ] = "local",
    within_allocation: Annotated[
        bool,
        typer.Option("--within-allocation", help="With --engine slurm: run jobs inside the allocation you are in."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would happen, start nothing.")] = False,
    log_json: Annotated[bool, typer.Option("--log-json", help="Log lines as JSON.")] = False,
    log_requests: Annotated[bool, typer.Option("--log-requests", help="Log every request to the API.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Log only warnings.")] = False,
) -> None:
    """Start the daemon that runs jobs on this machine's GPUs."""
    from trine.assembly.settings import parse_pairs
    from trine.client.address import state_directory
    from trine.core.errors import InputError
    from trine.server import daemon
    from trine.server.configuration import Options
    from trine.server.prune import Retention, keep_seconds

    if not 0 < round_s < float("inf"):
        raise InputError("--round", f"{round_s:g}", "a number of seconds greater than 0")
    pairs = dict(parse_pairs(settings or []))
    if within_allocation:
        pairs["engine.within_allocation"] = "true"
    options = Options(
        state_directory(state).absolute(),
        gpus,
        policy,
        placement,
        round_s,
        pairs,
        store,
        host,
        port,
        config,
        variability,
        throughputs,
        prices,
        event_driven,
        lease_s,
        job_user,
        truncate,
        _tls(tls_cert, tls_key),
        log_requests,
        share_between_users,
        take_over,
        Retention(keep_seconds(keep_jobs or "30d"), keep_ended, checkpoints=keep_jobs is not None),
        engine,
    )
    if dry_run:
        for sentence in daemon.dry_run(options):
            typer.echo(sentence)
        return
    daemon.configure_logging(log_json, quiet)
    daemon.run(options, lambda url: say(_listening(url, options.state, port)))


def _listening(url: str, state: Path, port: int | None) -> str:
    from trine.server.api.serve import USUAL_PORT

    other = port is None and not url.endswith(f":{USUAL_PORT}")
    taken = f" (port {USUAL_PORT} is taken)" if other else ""
    return f"trine: listening on {url}{taken}; state in {state}; dashboard: {url}/ui (trine dashboard); Ctrl-C stops it"
