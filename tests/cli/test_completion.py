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


FLAGS = ["options"]


def completed(script: Path, *words: str) -> list[str]:
    """What bash offers for the last word; ``trine`` itself is one that knows two live jobs and one that has ended.

    The daemon of another state directory knows job 99."""
    program = (
        'trine() { if [ "${!#}" = "$HOME/it" ]; then printf "pos id\\n1 99\\n"; return; fi\n'
        'printf "pos id name\\n1 17 a\\n2 18 b\\n"; if [ "$2" = --all ]; then echo - 3 c; fi; }\n'
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
        (["submit", "--after", "any", ":"], ["17", "18"]),
        (["submit", "--after", "any", ":", "17,failed", ":", "1"], ["17", "18"]),
        (["submit", "--after", "3,1"], ["3,17", "3,18"]),
        (["submit", "--after", "=", "any", ":", "18"], ["18"]),
        (["submit", "--after", "17", "--"], FLAGS),
        (["submit", "--after", "17", "--arr"], ["--array"]),
        (["cancel", "--state", "~/it", ""], ["99"]),
        (["logs", "--state", "=", "~/it", "-f", ""], ["99"]),
        (["submit", "--state", "~/it", "--after", ""], ["99"]),
        (["cancel", "--state", ""], []),
        (["queue", "--user", "cancel", "--wa"], ["--watch"]),
        (["cancel", "--name", ""], []),
        (["cancel", "--all", ""], ["17", "18"]),
        (["cancel", "3"], []),
        (["logs", "--ra"], ["--rank"]),
        (["submit", ""], []),
        (["submit", "--", "--gp"], []),
    ],
)
def test_bash_completes_verbs_options_and_jobs(script: Path, words: list[str], found: list[str]) -> None:
    got = completed(script, *words)
    assert got == found or (found is FLAGS and {"--after", "--array", "--gpus"} <= set(got))


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


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed here")
@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("trine cancel ", ["17", "18"]),
        ("trine submit --after ", ["17", "18"]),
        ("trine submit --after any:", ["any:17", "any:18"]),
        ("trine submit --after 3,", ["3,17", "3,18"]),
        ("trine cancel --state /it ", ["99"]),
        ("trine cancel --state=/it ", ["99"]),
        ("trine pred", ["predict"]),
    ],
)
def test_fish_completes_verbs_and_jobs(tmp_path: Path, line: str, found: list[str]) -> None:
    (tmp_path / "script").write_text(trine("completion", "fish").out)
    program = (
        "function trine; if contains -- --state=/it $argv; printf 'pos id\\n1 99\\n'; "
        "else; printf 'pos id name\\n1 17 a\\n2 18 b\\n'; end; end\n"
        f"source {tmp_path}/script\ncomplete -C '{line}'\n"
    )
    done = subprocess.run(["fish", "--no-config", "-c", program], capture_output=True, text=True, check=False)
    assert [each.split("\t")[0] for each in done.stdout.splitlines()] == found, done.stderr


def test_an_unknown_shell_is_wrong_usage() -> None:
    done = trine("completion", "tcsh")
    assert (done.code, done.out) == (2, "")
    assert "bash" in done.err
