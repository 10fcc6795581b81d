"""The documentation as tests see it: its pages, the commands and the blocks in them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_ENDS = frozenset(["&&", "||", "|", "&", ">"])


def blocks(page: Path, language: str = "") -> list[str]:
    """The fenced blocks of a language."""
    return [text for found, text in _BLOCK.findall(page.read_text()) if found == language]


def commands(text: str) -> list[list[str]]:
    """The ``trine`` commands of a shell block as words, without comments and without what follows them on the line."""
    lines = text.replace("\\\n", " ").splitlines()
    return [words for line in lines for words in _split(line) if words[0] == "trine"]


def _split(line: str) -> list[list[str]]:
    """A line of several commands as several; what is no shell at all (a table, a drawing) gives none."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        return []
    found: list[list[str]] = [[]]
    for word in words:
        if word not in _ENDS:
            found[-1].append(word.removesuffix(";"))
        if word in _ENDS or word.endswith(";"):
            found.append([])
    return [command for command in found if command]


_PROGRAMS = frozenset(
    ["trine", "make", "pip", "export", "install", "systemctl", "sqlite3", "cp", "rm", "git", "printf", "umask", "ssh"]
)
_ASSIGNMENT = re.compile(r"[A-Za-z_]+=\S*\s+")
_SPAN = re.compile(r"`([^`\n]+)`")


def is_shell(text: str) -> bool:
    """A block of commands, as opposed to what one prints or to the contents of a file."""
    first = _ASSIGNMENT.sub("", text.lstrip(), count=1) if not text.startswith("id=$(") else "trine "
    return Path(first.split()[0]).name in _PROGRAMS if first.split() else False


def shell_lines(page: Path) -> list[str]:
    """Every line of every block of commands, in the order of the page, with continued lines joined."""
    found = [text.replace("\\\n", " ") for text in blocks(page) if is_shell(text)]
    return [line.strip() for text in found for line in text.splitlines() if line.strip()]


def spans(text: str) -> list[str]:
    """What stands between backquotes outside of blocks."""
    return _SPAN.findall(_BLOCK.sub("", text))


def table_spans(page: Path, heading: str, column: int) -> list[str]:
    """What stands between backquotes in one column of the first table below a heading."""
    part = re.split(rf"^#+ {re.escape(heading)}$", page.read_text(), maxsplit=1, flags=re.MULTILINE)[1]
    table = re.search(r"(?:^\|.*\n)+", part, re.MULTILINE)
    assert table is not None, heading
    rows = [row.replace(r"\|", "/").split("|") for row in table.group().splitlines()[2:]]
    return [span for row in rows for span in _SPAN.findall(row[column + 1])]
