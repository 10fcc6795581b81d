"""Every command on every page is typed as it stands there and ends as the page says; the exceptions have a reason.

A page is typed from top to bottom into one shell, in a directory of its own. Files that it takes for granted are small
ones (``inputs.py``), ``trine up`` is a real daemon with virtual GPUs, and large numbers are made smaller."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import pytest

from tests.docs.inputs import make
from tests.docs.pages import PAGES, ROOT, blocks, is_shell, shell_lines, table_spans
from tests.docs.shell import Shell, shell
from tests.e2e.live import until
from tests.profile.command import fake_nvml
from trine.server.interface import JobState


@dataclass(frozen=True)
class Line:
    """What is expected of lines that begin in this way."""

    begins: str
    out: str = ""
    """A regular expression for what it prints."""
    code: int = 0
    interrupt_at: str = ""
    """It goes on until Ctrl-C, which comes when it has printed this."""
    instead: tuple[str, str] = ("", "")
    """What is replaced, and by what, to make it quick or, for a job, to make it last."""
    not_run: str = ""
    """Why it is not run here; that its options exist is tested in ``test_commands.py``."""


@dataclass(frozen=True)
class Page:
    """How a page is typed."""

    files: tuple[str, ...] = ()
    lines: tuple[Line, ...] = ()
    places: tuple[tuple[str, str], ...] = ()
    needs: str = ""
    """A program that may not be installed."""
    variables: tuple[tuple[str, str], ...] = ()
    """Set in the environment of whoever types."""
    gpus: int = 0
    """GPUs that the driver of the machine lists."""
    before: Callable[[Shell], None] | None = None
    after: Callable[[Shell], None] | None = None


# -- README ----------------------------------------------------------------------------------------------------------

README = Page(
    files=("log.csv", "openb_pod_list_default.csv.gz", "profile.json", "problem.json"),
    gpus=64,
    lines=(
        Line("make ", not_run="builds an environment from the network, or runs this very suite"),
        Line("trine submit", "^1$"),
        Line("trine queue", r"\b1\b.*running"),
        Line("trine explain 1", "job 1 starts on 2 GPUs"),
        Line("trine logs -f 1", "^hello$"),
        Line("trine sim run --trace trace.csv --cluster v100", "trine with trine"),
        Line("trine sim run --trace log.csv", "jobs +2 "),
        Line("trine sim run --trace", "srtf"),
        Line("trine sim run --preset all-three", "trine with trine", instead=("--seed", "--set world.jobs=50 --seed")),
        Line("trine trace generate", instead=("2000", "200")),
        Line("trine sim compare --trace trace.csv --cluster v100", "las", instead=("--out", "--workers 1 --out")),
        Line("trine sim compare --workload", "tiresias", instead=("0..9", "0..1 --workers 1 --set workload.jobs=100")),
        Line("trine sim compare --trace trace.csv --cluster 16x4", "pal", instead=("16x4", "16x4 --workers 1")),
        Line("trine trace info", "3 skipped: no GPU asked for"),
        Line("trine profile gpus", instead=("--out", "--devices cpu,0 --repeats 2 --seconds 0.02 --out")),
        Line("trine allocate", r"0\.4545"),
        Line(
            "trine sim run --preset gavel-static", "makespan", instead=("--policy", "--set workload.jobs=10 --policy")
        ),
        Line("trine reproduce", not_run="takes an hour and needs the public data; tests/reproduce runs its parts"),
        Line("trine policies;", "max-min-fairness"),
        Line("trine view", interrupt_at="/ui"),
    ),
)

# -- running jobs ----------------------------------------------------------------------------------------------------


def _live_after(live: Shell) -> None:
    """Exit statuses as in the table of ``trine wait``, and everything else that stands outside of the blocks."""
    live.up("trine up --gpus 2x2 --event-driven")
    statuses = {
        "true": 0,
        "sh -c 'exit 7'": 7,
        "sh -c 'kill -9 $$'": 128 + 9,
    }
    for command, status in statuses.items():
        assert live.type(f"trine wait $(trine submit -- {command})").code == status, command
    assert live.type("trine wait $(trine submit -- true) $(trine submit -- false)").code == 1
    assert live.type("id=$(trine submit -- sleep 300); trine wait --timeout 0.2 $id").code == 124
    assert live.type("id=$(trine submit -- sleep 300); trine cancel $id; trine wait $id").code == 1
    assert live.type("trine show 999").code == 1
    assert live.type("trine submit --gpus 0 -- true").code == 2
    retried = live.type("trine submit --retries 2 -- false").out.strip()
    until(lambda: "Retry 1 of 2 in 5 s." in live.type(f"trine explain {retried}").out, "the pause before a retry")
    for command in table_spans(ROOT / "docs/live.md", "Processes of a job", 1):
        said = live.type(command)
        assert (said.code, said.err) == (0, ""), command
    assert live.type("trine undrain node1").code == 0
    assert live.type("source <(trine completion bash) && complete -p trine").out.strip().endswith("trine")
    assert live.type("trine completion zsh && trine completion fish").code == 0
    assert live.type("trine cancel --all").code == 0
    [code] = blocks(ROOT / "docs/live.md", "python")
    (live.folder / "client.py").write_text(code)
    said = live.type("python client.py")
    assert said.code == 0, said.err
    assert said.out.splitlines()[:2] == ["hello", "done 0"]


LIVE = Page(
    files=("job.yaml", "train.py", "bin/torchrun"),
    variables=(("MY_SETTING", "1"), ("HF_TOKEN", "secret")),
    lines=(
        Line("trine submit --gpus 2 --name first", "^1$", instead=("sleep 30", "sleep 300")),
        Line("trine submit", r"^\d+$"),
        Line("trine queue --watch", interrupt_at="first", code=130),
        Line("trine queue --only failed", r"\Apos .*\n\Z"),
        Line("trine queue", "first"),
        Line("trine show 1", "(?s)name +first.*state +running"),
        Line("trine explain 1", "starts on 2 GPUs"),
        Line("trine logs -f 1", interrupt_at="hello from rank 0", code=130),
        Line("trine logs --tail 20 1", "hello from rank 0"),
        Line("trine nodes node0", "(?s)node0 .*drained.*new fan"),
        Line("trine nodes", r"node0 .*\b1\b"),
        Line("trine hold 1", "^1 (stopping|held)"),
        Line("trine release 1", "^1 waiting"),
        Line("trine priority 1 5", "^1 .*, priority 5"),
        Line("trine cancel 1 2 3", "(?m)^1 .*\n2 .*\n3 "),
        Line("id=$(", "^trained$"),
        Line("trine token add ada", r"^[0-9a-f]{64}$"),
        Line("trine token list", "ada"),
        Line("trine token revoke", "ada revoked"),
        Line("trine drain node0 ", "node0 drained"),
    ),
    after=_live_after,
)


def _slurm_after(slurm: Shell) -> None:
    """The tables of the page: commands, options, variables, states."""
    page = ROOT / "docs/slurm.md"
    (slurm.folder / "d").mkdir()
    (slurm.folder / "queues.yaml").write_text("queues: {p: {}, default: {}}\ndefault_queue: default\n")
    slurm.up("trine up --gpus a100=2x4,h100=1x1 --event-driven --config queues.yaml")
    assert slurm.type("trine submit --gpus 1 -- sleep 300").out == "1\n"
    assert slurm.type("trine submit --gpus 1 -- sleep 300").out == "2\n"
    typed = [*table_spans(page, "A first job", 1), *table_spans(page, "Commands", 1)]
    for span in sorted(typed, key=lambda span: ("cancel" in span) + 2 * ("logs -f JOB" in span)):
        words = {"JOB": "1", "CMD": "true", "drain n ": "drain node0 ", "NAME": "x"}
        for word, value in words.items():
            span = re.sub(rf"\b{word}", value, span)
        if not re.match(r"(id=\$\()?trine", span) or span in ("trine hold", "trine release", "trine submit"):
            continue
        said = slurm.type(span)
        assert said.code == 0, (span, said)
    known = slurm.type("trine submit --help").out
    for span in table_spans(page, "Options and `#SBATCH` directives", 1):
        if not span.startswith("--"):
            continue
        if span in ("--export", "--gpu-types"):
            assert span in known
            continue
        said = slurm.type(f"trine submit {span.replace(' X', ' 1')} -- true")
        assert said.code == 0, (span, said)
    said = slurm.type("id=$(trine submit --array 0-0 -- env); trine logs -f $id")
    variables = {line.partition("=")[0] for line in said.out.splitlines()}
    for span in table_spans(page, "Environment variables", 1):
        assert span in variables, span
    named = set(table_spans(page, "States", 1)) - {"trine show", "max_runtime", "trine explain"}
    assert named == set(get_args(JobState))
    assert slurm.type("trine cancel --all").code == 0


SLURM = Page(files=("job.sh", "train.py"), after=_slurm_after)

# -- operating it ----------------------------------------------------------------------------------------------------


def _operations_before(shell: Shell) -> None:
    (shell.folder / "deploy").symlink_to(ROOT / "deploy")
    (shell.folder / "etc/systemd/system").mkdir(parents=True)
    (shell.folder / "etc/prometheus").mkdir()
    (shell.folder / "backup").mkdir()
    (shell.folder / "opt/trine/.venv").mkdir(parents=True)
    (shell.folder / "opt/trine/.venv/bin").symlink_to(ROOT / ".venv/bin")
    shell.up(f"trine up --gpus 1x1 --event-driven --state {shell.folder}/var/lib/trine")
    shell.type("export TRINE_STATE=/var/lib/trine")
    said = shell.type("id=$(trine submit -- true) && trine wait $id && trine token add ada")
    assert said.code == 0, said


def _operations_after(shell: Shell) -> None:
    assert re.search(r"\b1\b.*done", shell.type("trine queue --all").out)
    assert shell.type("trine replay").code == 0
    # ``command`` keeps the shell from taking these for the daemon of the page.
    assert shell.type("command trine up --gpus 1x1").code == 1
    assert shell.type("command trine up --gpus 1x1 --policy nonsense").code == 2
    assert shell.type("trine token revoke ada").code == 0


OPERATIONS = Page(
    needs="sqlite3",
    places=(("/var/lib/trine", "var/lib/trine"), ("/backup", "backup"), ("/etc", "etc"), ("/opt", "opt")),
    before=_operations_before,
    after=_operations_after,
    lines=(
        Line("systemctl daemon-reload", not_run="systemd"),
        Line("systemctl enable", not_run="systemd"),
        Line("trine up --store postgresql", not_run="PostgreSQL; tests/server runs a daemon on one where there is one"),
        Line("git ", not_run="the network"),
        Line("chown ", not_run="Prometheus is not installed"),
        Line("curl ", not_run="asks at the usual port"),
        Line("TRINE_STATE=/var/lib/trine trine token add metrics"),
        # The options of the service name files at their usual place.
        Line(
            "TRINE_STATE=",
            "would",
            instead=("--dry-run $(sed -n", "--dry-run --gpus 1x1 $(sed -n -e 's|/e.c/|etc/|' -e"),
        ),
    ),
)


def _security_before(shell: Shell) -> None:
    shell.up(f"trine up --gpus 1x1 --state {shell.folder}/var/lib/trine")
    token = shell.type("trine token add --state /var/lib/trine ada").out
    (shell.folder / ".config").mkdir()
    (shell.folder / ".config/trine-token").write_text(token)
    (shell.folder / ".config/trine-token").chmod(0o600)


def _security_after(shell: Shell) -> None:
    until(lambda: shell.type("trine queue").code == 0, "the daemon to know the new token")


SECURITY = Page(
    places=(("/var/lib/trine", "var/lib/trine"),),
    before=_security_before,
    after=_security_after,
    lines=(Line("trine up --host", not_run="listens on all addresses; tests/e2e serves TLS on the loopback address"),),
)

# -- simulating and measuring ----------------------------------------------------------------------------------------


def _predictions_before(shell: Shell) -> None:
    shell.up("trine up --gpus 4x8 --event-driven")
    # The page asks about job 17; a forecast of all twenty takes long.
    (shell.folder / "fill.py").write_text(
        "from trine.client import Client\n"
        "ids = Client().submit([{'run': ['sleep', '300'], 'gpus': 16}] * 20)\n"
        "for job_id in ids[:11]:\n"
        "    Client().cancel(job_id)\n"
    )
    said = shell.type("python fill.py")
    assert said.code == 0, said
    drawn = "--workload philly --set workload.jobs=60 --set workload.load=2"
    said = shell.type(f"trine sim run {drawn} --cluster 2x8 --policy las --out las")
    assert said.code == 0, said


def _predictions_after(shell: Shell) -> None:
    assert re.search(r"(?m)^priority +5$", shell.type("trine show 17").out)  # by `--apply`
    assert shell.type("trine cancel --all").code == 0


def _shown(name: str, begins: str) -> str:
    """What the page shows as printed by a command, but for blanks at the end of a line."""
    [text] = [text for text in blocks(ROOT / name) if text.startswith(begins)]
    return r" *\n".join(map(re.escape, text.splitlines()))


_CORE = ("--out", "--devices cpu,0 --node n1 --repeats 3 --seconds 0.02 --out")

PAGES_RUN: dict[str, Page] = {
    "README.md": README,
    "docs/live.md": LIVE,
    "docs/slurm.md": SLURM,
    "docs/sdk.md": Page(
        lines=(
            Line("pip install", not_run="builds with tools from the network; tests/packaging builds and installs it"),
            Line("make wheel", not_run="the same"),
        )
    ),
    "docs/operations.md": OPERATIONS,
    "docs/security.md": SECURITY,
    "docs/allocate.md": Page(
        files=("problem.json", "best_type.py"),
        lines=(
            Line("trine allocate problem.json --policy max-min", _shown("docs/allocate.md", " job ")),
            Line("trine allocate problem.json --policy ./best", "smallest share of time: 0.333"),
            Line("trine sim compare", "best_type", instead=("workload.jobs=40", "workload.jobs=8 --workers 1")),
        ),
    ),
    "docs/clusters.md": Page(files=("nodes.csv.gz",), lines=(Line("trine cluster info 4x8x8", "256"),)),
    "docs/policies.md": Page(
        files=("simulation_throughputs.json", "examples/shares"),
        lines=(
            Line("trine sim compare", "isolated", instead=("workload.jobs=40", "workload.jobs=8 --workers 1")),
            Line("trine sim run --preset", instead=("--set", "--set workload.jobs=9 --set")),
            Line("trine up", "max-min-fairness"),
        ),
    ),
    "docs/profiling.md": Page(
        files=("train.py", "lab.yaml"),
        lines=(
            Line("trine profile gpus", instead=_CORE),
            # The other machine is as fast as this one: times of one application are compared.
            Line("trine profile build n1", instead=("trine", "sed s/n1/n2/g n1.records.csv > n2.records.csv; trine")),
            Line("trine sim run ...", instead=("...", "--workload pai --set workload.jobs=5 --cluster lab.yaml")),
        ),
    ),
    "docs/network.md": Page(files=("steps.csv",)),
    "docs/traces.md": Page(
        files=("cluster.csv", "log.tsv"),
        lines=(Line("trine trace info cluster.csv", "2 jobs from 2 rows"),),
    ),
    "docs/placements.md": Page(lines=(Line("trine sim run", "dally with delay"),)),
    "docs/trine.md": Page(
        lines=(
            Line("trine sim run --preset", "trine with trine", instead=("jobs=200", "jobs=60")),
            Line("trine sim run", "trine with trine", instead=("jobs=300", "jobs=30")),
            Line("trine sim compare", "max-min-fairness", instead=("jobs=100", "jobs=40")),
        ),
    ),
    "docs/joint.md": Page(
        lines=(Line("trine reproduce", not_run="takes minutes; tests/reproduce runs its parts on a tiny world"),),
    ),
    "docs/dally.md": Page(
        lines=(Line("trine reproduce", not_run="takes minutes; tests/reproduce runs its parts on a tiny world"),),
    ),
    "docs/published.md": Page(
        files=("workload-1.csv", "gpus-64.csv"),
        lines=(
            Line("trine reproduce", not_run="takes an hour; tests/reproduce runs its parts"),
            Line("trine sim run --preset gavel-continuous", not_run="a minute; benchmarks/gavel.py runs both"),
        ),
    ),
    "docs/engines.md": Page(
        lines=(
            Line("trine up --engine slurm", not_run="Slurm; tests/executor starts one where it is installed"),
            Line("salloc", not_run="the same"),
            Line("make slurm-demo", not_run="the same"),
        )
    ),
    "docs/kubernetes.md": Page(
        lines=(
            Line("trine up --engine kubernetes", not_run="an API server; tests/executor starts one where it is built"),
            Line("pip install", not_run="the same"),
            Line("kubectl", not_run="the same"),
            Line("make kube-apiserver", not_run="the same"),
        )
    ),
    "docs/ray.md": Page(
        lines=(
            Line("pip install", not_run="Ray; tests/executor starts one where it may"),
            Line("trine up --engine ray", not_run="the same"),
            Line("trine sim compare", not_run="the same"),
            Line("make ray-demo", not_run="the same"),
        )
    ),
    "docs/predictions.md": Page(
        files=("trace.csv",),
        before=_predictions_before,
        after=_predictions_after,
        lines=(
            Line("trine predict", "^17 "),
            Line("trine whatif 'policy", r"\bgain", instead=("las", "fifo")),
            Line("trine whatif", r"\bgain"),
            Line("trine plan --state", not_run="a new daemon has no record; tests/planning/test_capacity.py has one"),
            Line("trine plan", r"k80=2x4: wait_p95"),
            Line("trine reproduce", not_run="takes minutes; tests/reproduce runs its parts"),
        ),
    ),
    "docs/dashboard.md": Page(
        lines=(
            Line("ssh ", not_run="another machine"),
            Line("trine sim run", instead=("--cluster", "--set workload.jobs=20 --cluster")),
            Line("trine view", interrupt_at="/ui"),
            Line("trine dashboard", "/ui"),
        )
    ),
    "docs/throughputs.md": Page(
        files=("simulation_throughputs.json",),
        lines=(
            Line("trine sim run --preset", instead=("--set", "--set window=0:20 --set workload.jobs=20 --set")),
            Line(
                "trine sim run",
                "JCT +mean",
                instead=("12x1 --throughputs", "12x1 --set workload.jobs=60 --throughputs"),
            ),
        ),
    ),
    "docs/tutorial.md": Page(
        files=("examples/helios_sample.csv",),
        lines=(Line("trine sim compare", instead=("workload.jobs=2000", "workload.jobs=30 --workers 1")),),
    ),
    "docs/variability.md": Page(
        files=("resnet.csv.gz", "bert.csv.gz", "trace.csv", "measured.json"),
        lines=(Line("trine sim run", instead=("...", "--trace trace.csv --cluster 16x4")),),
    ),
    "docs/workloads.md": Page(),
    "docs/worlds.md": Page(
        files=("TVN-load0.9-seed1",),
        lines=(
            Line("trine sim run", "JCT +mean"),
            Line("trine sim compare", "srsf", instead=("--round", "--workers 1 --round")),
        ),
    ),
}


_LOOKS = ("trine queue", "trine show", "trine explain", "trine nodes", "trine logs")

PRINTED_OR_DATA = (
    ("README.md", "22:34:41"),
    ("README.md", "policy  "),
    ("CONTRIBUTING.md", "trace "),
    ("docs/allocate.md", " job "),
    ("docs/engines.md", "slurm.conf:"),
    ("docs/notebook.md", "policy: unknown"),
    ("docs/ray.md", "ray start"),
    ("docs/throughputs.md", "model,gpus,"),
    ("docs/throughputs.md", "time_s,"),
)
"""Blocks that are not commands: what one prints, the contents of a file, a drawing."""


def _rule(page: Page, line: str) -> Line:
    return next((rule for rule in page.lines if line.startswith(rule.begins)), Line(line))


def test_every_page_with_commands_is_run() -> None:
    assert {str(page.relative_to(ROOT)) for page in PAGES if shell_lines(page)} <= set(PAGES_RUN)


def test_every_block_is_one_of_commands_or_known_not_to_be() -> None:
    for page in PAGES:
        name = str(page.relative_to(ROOT))
        for text in blocks(page):
            known = any(name == where and text.startswith(begins) for where, begins in PRINTED_OR_DATA)
            assert is_shell(text) != known, f"{name}: {text[:60]}"


@pytest.mark.parametrize("name", PAGES_RUN)
def test_what_is_expected_of_a_line_names_one(name: str) -> None:
    lines = shell_lines(ROOT / name)
    for rule in PAGES_RUN[name].lines:
        assert any(_rule(PAGES_RUN[name], line) is rule for line in lines), rule.begins


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES_RUN)
def test_a_page_can_be_typed_as_it_stands(name: str, tmp_path: Path) -> None:
    page = PAGES_RUN[name]
    if page.needs and shutil.which(page.needs) is None:
        pytest.skip(f"{page.needs} is not installed here")
    make(tmp_path, page.files)
    environment = fake_nvml(tmp_path, names=",".join(["V100"] * page.gpus)) if page.gpus else {}
    with shell(tmp_path, dict(page.places), {**environment, **dict(page.variables)}) as typed:
        if page.before is not None:
            page.before(typed)
        for line in shell_lines(ROOT / name):
            _type(typed, line, _rule(page, line))
        if page.after is not None:
            page.after(typed)
        assert typed.down() == 0


def _type(typed: Shell, line: str, rule: Line) -> None:
    if rule.not_run:
        return
    words, deadline = line.replace(*rule.instead) if rule.instead[0] else line, time.monotonic() + 30
    while True:
        said = typed.type(words, rule.interrupt_at)
        assert said.code == rule.code, f"{line}\n{said.err}{said.out}"
        if re.search(rule.out, said.out, re.MULTILINE):
            return
        # A job needs a moment to start; whoever types looks again.
        assert line.startswith(_LOOKS) and time.monotonic() < deadline, f"{line}\n{said.err}{said.out}"
        time.sleep(0.2)
