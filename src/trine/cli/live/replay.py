"""``trine replay``: look again at what a daemon recorded. Reads the journal, changes nothing, needs no daemon."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from trine.cli.live.verb import Form, Output, State, print_json, verb


@verb
def replay(
    state: State = None,
    store: Annotated[str, typer.Option(metavar="URL", help="Journal elsewhere, as given to `trine up`.")] = "",
    config: Annotated[
        Path | None, typer.Option(help="Queues and users, as given to `trine up`; for journals without their limits.")
    ] = None,
    throughputs: Annotated[str, typer.Option(help="Throughputs, as given to `trine up`.")] = "",
    output: Output = Form.TABLE,
) -> None:
    """Decide a recorded run again, simulate it, and compare."""
    from trine.client.address import state_directory
    from trine.core.errors import InputError
    from trine.inputs.throughputs import load_throughputs
    from trine.server.access import read_access
    from trine.server.build import Model
    from trine.server.configuration import quotas_of
    from trine.server.replay import error_sentence, recorded_run, redecide
    from trine.server.store import Store
    from trine.sim.scenario import finish_times

    journal = state_directory(state) / "journal.db"
    if not store and not journal.exists():
        raise InputError(str(journal), "no such file", "the state directory of a daemon that ran")
    known = load_throughputs(throughputs) if throughputs else None
    model = Model(known, quotas_of(read_access(config))) if config else Model(known)
    agreement, ended = redecide(Store.open(store or journal).records(), model)
    run = recorded_run(ended, agreement.model)
    forecasts = [] if run is None else run.compare(finish_times(run.settings, run.engine, run.jobs))
    learnt = ended.observations.prediction_error() if ended.observations else None
    if output is Form.JSON:
        print_json(
            {
                "decisions": agreement.decisions,
                "agreed": agreement.agreed,
                "difference": agreement.difference or None,
                "jobs": [{"job": f.job, "real_s": f.real_s, "simulated_s": f.simulated_s} for f in forecasts],
                "prediction_error": None if learnt is None else learnt.median_absolute,
            }
        )
    else:
        typer.echo(f"{agreement.agreed} of {agreement.decisions} decisions come out the same.")
        if agreement.difference:
            typer.echo(f"The first that does not: {agreement.difference}")
        typer.echo(error_sentence(forecasts))
    if agreement.difference:
        sys.exit(1)
