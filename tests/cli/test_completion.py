"""Completion as a shell does it: the script is loaded and asked."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.live.command import trine
from trine.cli.lazy import VERBS


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "trine.bash"
    done = trine("completion", "bash")
    assert (done.code, done.err) == (0, "")
    path.write_text(done.out)
    return path


def completed(script: Path, *words: str) -> list[str]:
    """What bash offers for the last word; ``trine`` itself is one that knows two live jobs and one that has ended."""
    program = (
        'trine() { printf "pos id name\\n1 17 a\\n2 18 b\\n"; if [ "$2" = --all ]; then echo - 3 c; fi; }\n'
        'source "$1"; shift\n'
        'COMP_WORDS=(trine "$@"); COMP_CWORD=$#\n'
        '_trine; printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(["bash", "-c", program, "bash", script, *words], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed here")
@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["qu"], ["queue", "quota"]),
        (["priority", ""], ["17", "18"]),
        (["sim", ""], ["run", "compare"]),
        (["sim", "run", "--pre"], ["--preset"]),
        (["queue", "--wa"], ["--watch"]),
        (["cancel", ""], ["17", "18"]),
        (["logs", "-f", ""], ["17", "18", "3"]),
        (["submit", "--gpus", "2", "--after", "1"], ["17", "18"]),
        (["cancel", "3"], []),
        (["logs", "--ra"], ["--rank"]),
        (["submit", ""], []),
        (["submit", "--", "--gp"], []),
    ],
)
def test_bash_completes_verbs_options_and_jobs(script: Path, words: list[str], found: list[str]) -> None:
    assert completed(script, *words) == found


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed here")
def test_bash_knows_every_verb(script: Path) -> None:
    assert completed(script, "") == list(VERBS)


@pytest.mark.parametrize(("shell", "check"), [("zsh", ["zsh", "-n"]), ("fish", ["fish", "--no-execute"])])
def test_other_shells_accept_their_scripts(shell: str, check: list[str], tmp_path: Path) -> None:
    text = trine("completion", shell).out
    assert "queue" in text and "--preset" in text.replace("-l preset", "--preset")
    if shutil.which(shell) is not None:
        (tmp_path / "script").write_text(text)
        subprocess.run([*check, tmp_path / "script"], check=True)


def test_an_unknown_shell_is_wrong_usage() -> None:
    done = trine("completion", "tcsh")
    assert (done.code, done.out) == (2, "")
    assert "bash" in done.err
