"""``trine up``: start the daemon. Everything it does lives in ``trine.server.daemon``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trine.cli.live.verb import State, say

if TYPE_CHECKING:
    from trine.server.prune import Retention

Gpus = Annotated[
    str, typer.Option(metavar="SPEC", help="Virtual GPUs, as in 8 or 4x2, or a cluster file.  [default: real GPUs]")
]
Policy = Annotated[str, typer.Option(help="Which jobs go next; see `trine policies`.")]
Placement = Annotated[str, typer.Option(help="Where jobs go; see `trine placements`.")]
RoundS = Annotated[float, typer.Option("--round", help="Seconds between rounds.")]
EventDriven = Annotated[bool, typer.Option("--event-driven", help="Decide a whole round at every arrival and exit.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A parameter; see `trine settings`.")
]
Config = Annotated[Path | None, typer.Option(help="Queues, users and their limits (YAML).")]
Variability = Annotated[str, typer.Option(help="Measured GPUs: a profile (JSON) or a CSV file.")]
Throughputs = Annotated[str, typer.Option(help="Measured throughputs (JSON).")]
Prices = Annotated[
    str,
    typer.Option(
        metavar="SPEC",
        help="Per GPU and hour, for min-cost: v100=2.5,k80=0.5, gavel-spot, or a CSV; constant ones only.",
    ),
]
Store = Annotated[
    str, typer.Option(metavar="URL", help="Journal, as postgresql://...  [default: a file in the state directory]")
]
Host = Annotated[str, typer.Option(help="Address to listen on; anything but loopback is open to others.")]
Port = Annotated[
    int | None, typer.Option(help="Port to listen on; 0 takes a free one.  [default: 7460, or a free one]")
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-host", metavar="NAME", help="Browsers may ask by this name too, such as a proxy's; may be repeated."
    ),
]
TlsCert = Annotated[Path | None, typer.Option(help="Certificate of the API, to serve it over TLS.")]
TlsKey = Annotated[Path | None, typer.Option(help="Key of the certificate.")]
LeaseS = Annotated[
    float | None,
    typer.Option("--lease", help="Seconds without a daemon after which jobs get SIGTERM, and are ended."),
]
JobUser = Annotated[str, typer.Option("--job-user", help="Started as root: run the owner's own jobs as this user.")]
ShareBetweenUsers = Annotated[
    bool, typer.Option("--share-between-users", help="Two users' jobs may share GPUs; else only one user's.")
]
Truncate = Annotated[int | None, typer.Option(help="Give up all journal records after this number (a damaged tail).")]
KeepJobs = Annotated[
    str | None,
    typer.Option(
        metavar="T",
        help="Remove logs and checkpoints T after a job ends (12h, forever).  [default: 30d, checkpoints never]",
        show_default=False,
    ),
]
KeepEnded = Annotated[int, typer.Option(metavar="N", min=0, help="Remove them earlier if more than N jobs have ended.")]
KeepJournal = Annotated[
    str, typer.Option(metavar="T", help="Remove records of the journal that no start needs after T (90d).")
]
TakeOver = Annotated[bool, typer.Option("--take-over", help="Own a journal whose daemon, elsewhere, is gone for good.")]
Engine = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="What runs the jobs: local, this machine; slurm, a cluster. --set engine.KEY=VALUE sets it up.",
    ),
]
WithinAllocation = Annotated[
    bool,
    typer.Option("--within-allocation", help="With --engine slurm: run jobs inside the allocation you are in."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would happen, start nothing.")]
LogJson = Annotated[bool, typer.Option("--log-json", help="Log lines as JSON.")]
LogRequests = Annotated[bool, typer.Option("--log-requests", help="Log every request to the API.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Log only warnings.")]


def up(
    state: State = None,
    gpus: Gpus = "",
    policy: Policy = "fifo-backfill",
    placement: Placement = "packed-sticky",
    round_s: RoundS = 60.0,
    event_driven: EventDriven = False,
    settings: Settings = None,
    config: Config = None,
    variability: Variability = "",
    throughputs: Throughputs = "",
    prices: Prices = "",
    store: Store = "",
    host: Host = "127.0.0.1",
    port: Port = None,
    allow_host: AllowHost = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    lease_s: LeaseS = None,
    job_user: JobUser = "",
    share_between_users: ShareBetweenUsers = False,
    truncate: Truncate = None,
    keep_jobs: KeepJobs = None,
    keep_ended: KeepEnded = 100_000,
    keep_journal: KeepJournal = "forever",
    take_over: TakeOver = False,
    engine: Engine = "local",
    within_allocation: WithinAllocation = False,
    dry_run: DryRun = False,
    log_json: LogJson = False,
    log_requests: LogRequests = False,
    quiet: Quiet = False,
) -> None:
    """Start the daemon that runs jobs on this machine's GPUs."""
    from trine.client.address import state_directory
    from trine.core.errors import InputError
    from trine.server import daemon
    from trine.server.configuration import Options

    if not 0 < round_s < float("inf"):
        raise InputError("--round", f"{round_s:g}", "a number of seconds greater than 0")
    options = Options(
        state=state_directory(state).absolute(),
        gpus=gpus,
        policy=policy,
        placement=placement,
        round_s=round_s,
        settings=_settings(settings, within_allocation),
        store=store,
        host=host,
        port=port,
        allowed_hosts=tuple(allow_host or ()),
        config=config,
        variability=variability,
        throughputs=throughputs,
        prices=prices,
        event_driven=event_driven,
        lease_s=lease_s,
        job_user=job_user,
        truncate=truncate,
        tls=_tls(tls_cert, tls_key),
        log_requests=log_requests,
        share_between_users=share_between_users,
        take_over=take_over,
        retention=_retention(keep_jobs, keep_ended, keep_journal),
        engine=engine,
    )
    if dry_run:
        for sentence in daemon.dry_run(options):
            typer.echo(sentence)
        return
    daemon.configure_logging(log_json, quiet)
    daemon.run(options, lambda url: say(_listening(url, options.state, port)))


def _settings(pairs: list[str] | None, within_allocation: bool) -> dict[str, str]:
    from trine.assembly.settings import parse_pairs

    inside = {"engine.within_allocation": "true"} if within_allocation else {}
    return parse_pairs(pairs or []) | inside


def _retention(keep_jobs: str | None, keep_ended: int, keep_journal: str) -> Retention:
    """Checkpoints go with the directories of jobs only where it was said how long those stay."""
    from trine.server.prune import Retention, keep_seconds

    jobs_s, journal_s = keep_seconds(keep_jobs or "30d"), keep_seconds(keep_journal, "--keep-journal")
    return Retention(jobs_s, keep_ended, checkpoints=keep_jobs is not None, journal_s=journal_s)


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


def _listening(url: str, state: Path, port: int | None) -> str:
    from trine.server.api.serve import USUAL_PORT

    other = port is None and not url.endswith(f":{USUAL_PORT}")
    taken = f" (port {USUAL_PORT} is taken)" if other else ""
    return f"trine: listening on {url}{taken}; state in {state}; dashboard: {url}/ui (trine dashboard); Ctrl-C stops it"
