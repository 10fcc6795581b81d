"""Commands in the documentation, in blocks and in sentences, exist with their options; see ``test_pages_run.py``."""

from __future__ import annotations

import re
import shlex
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import PAGES, ROOT, blocks, commands, spans
from tests.e2e.live import daemon
from trine.cli.lazy import VERBS, load

IN_BLOCKS = {(p.name, shlex.join(c)) for p in PAGES for text in blocks(p) for c in commands(text)}
IN_SENTENCES = {
    (page.name, shlex.join(words))
    for page in PAGES
    if page.name != "CHANGELOG.md"
    for text in spans(page.read_text())
    for words in commands(text)
    if len(words) > 2
}
SHOWN = sorted(IN_BLOCKS | IN_SENTENCES)


def _command(words: list[str]) -> tuple[Any, list[str]]:
    """The command that the words call, and the words that are left for it."""
    assert words[1] in VERBS, f"there is no command {words[1]!r}"
    command, rest = load(words[1]), words[2:]
    while rest and rest[0] in getattr(command, "commands", ()):
        command, rest = command.commands[rest[0]], rest[1:]
    assert not getattr(command, "commands", None), f"{shlex.join(words)} names no command of {words[1]}"
    return command, rest


@pytest.mark.parametrize(("page", "line"), SHOWN, ids=lambda value: str(value)[:60])
def test_commands_and_their_options_exist(page: str, line: str) -> None:
    words = shlex.split(line)
    if words[1:] == ["--help"]:
        return
    command, rest = _command(words)
    known = {option for param in command.params for option in (*param.opts, *param.secondary_opts)} | {"--help"}
    own = rest[: rest.index("--")] if "--" in rest else rest
    for word in own:
        if re.match(r"--?[a-zA-Z]", word):
            assert word.partition("=")[0] in known, f"{page}: {line}"


def test_targets_of_make_exist() -> None:
    known = set(re.findall(r"^([a-z][\w.-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        for target in re.findall(r"`make ([a-z][\w-]*)", page.read_text()):
            assert target in known, f"{page.name}: make {target}"


@pytest.mark.slow
def test_a_backup_made_while_the_daemon_runs_can_be_restored(tmp_path: Path) -> None:
    """The way of docs/operations.md, with the library that the sqlite3 command is made of."""
    state, backup = tmp_path / "state", tmp_path / "backup.db"
    with daemon(state, "--gpus", "1x1") as site:
        [job_id] = site.up().submit({"run": ["true"]})
        assert site.client is not None
        assert site.client.wait(job_id, timeout_s=60)["state"] == "done"
        source, target = sqlite3.connect(state / "journal.db"), sqlite3.connect(backup)
        source.backup(target)
        source.close()
        target.close()
        site.stop()
        for name in ("journal.db", "journal.db-wal", "journal.db-shm"):
            (state / name).unlink(missing_ok=True)
        backup.rename(state / "journal.db")
        assert site.up().job(job_id)["state"] == "done"
