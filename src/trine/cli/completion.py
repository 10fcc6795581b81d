"""``trine completion``: a script for a shell, made from the commands as they are.

The script knows verbs and options by itself; only ids of jobs are asked for, with ``trine queue``.
"""

from __future__ import annotations

import shlex
from enum import StrEnum
from typing import Annotated, Any

import typer

from trine.cli.lazy import VERBS, load

_WITH_LIVE_JOBS = ("cancel", "hold", "predict", "priority", "release", "wait")
_WITH_ANY_JOBS = ("show", "explain", "logs")
_AFTER = "--after"
"""The option of ``submit`` that takes ids."""
_LIVE_IDS = "trine queue 2>/dev/null | awk 'NR > 1 { print $2 }'"
_ANY_IDS = "trine queue --all --limit 200 2>/dev/null | awk 'NR > 1 { print $2 }'"
"""Those that can still change first, then the newest that have ended."""

_WORDS = """\
_trine_words() {
  case "$1" in
%s
    *) return 1 ;;
  esac
}
"""

_BASH = """\
# Completion of trine in bash; for this shell: source <(trine completion bash)
%s
_trine() {
  local cur="${COMP_WORDS[COMP_CWORD]}" verb="" hidden="-*" word words i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    word="${COMP_WORDS[i]}"
    [[ "$word" == -- ]] && return
    if [[ "$word" != -* ]] && _trine_words "${verb:+$verb }$word" >/dev/null; then
      verb="${verb:+$verb }$word"
    fi
  done
  words="$(_trine_words "$verb")"
  case "${COMP_WORDS[COMP_CWORD-1]}:$cur:$verb" in
    --after:*) words="$(%s)" ;;
    *:-*) hidden="" ;;
    *:%s) words="$(%s)" ;;
    *:%s) words="$(%s)" ;;
  esac
  COMPREPLY=($(compgen -W "$words" -X "$hidden" -- "$cur"))
}
complete -o default -F _trine trine
"""

_ZSH = """\
#compdef trine
# Completion of trine in zsh; for this shell, after compinit: source <(trine completion zsh)
%s
_trine() {
  local verb="" word i
  for ((i = 2; i < CURRENT; i++)); do
    word="${words[i]}"
    if [[ "$word" == -- ]]; then
      _files
      return
    fi
    if [[ "$word" != -* ]] && _trine_words "${verb:+$verb }$word" >/dev/null; then
      verb="${verb:+$verb }$word"
    fi
  done
  local -a found
  found=(${=$(_trine_words "$verb")})
  case "${words[CURRENT-1]}:${words[CURRENT]}:$verb" in
    --after:*) found=(${(f)"$(%s)"}) ;;
    *:-*) ;;
    *:%s) found=(${(f)"$(%s)"}) ;;
    *:%s) found=(${(f)"$(%s)"}) ;;
  esac
  if [[ "${words[CURRENT]}" != -* ]]; then
    found=(${found:#-*})
  fi
  if (( ${#found} )); then
    compadd -- $found
  else
    _files
  fi
}
compdef _trine trine
"""

_FISH = """\
# Completion of trine in fish; for this shell: trine completion fish | source
function __trine_at
  set -l verb
  for word in (commandline -opc)[2..-1]
    if contains -- (string join ' ' -- $verb $word) %s
      set -a verb $word
    end
  end
  set -l at (string join ' ' -- $verb)
  test "$at" = "$argv[1]"
end
%s
"""


class Shell(StrEnum):
    """Shells a script is made for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish", help="Your shell.")]) -> None:
    """Print a script that completes trine's commands in a shell.

    bash: source <(trine completion bash); zsh: source <(trine completion zsh), after compinit; fish: trine completion
    fish | source. Put that line into the shell's start-up file.
    """
    typer.echo({Shell.BASH: _bash, Shell.ZSH: _zsh, Shell.FISH: _fish}[shell](), nl=False)


def tree() -> dict[str, Any]:
    """Commands by their words: ``""`` is trine itself, ``sim run`` one below a verb."""
    found: dict[str, Any] = {"": None}
    for verb in VERBS:
        try:
            _add(found, verb, load(verb))
        except ImportError:  # of a part that is not installed: known by its name only
            found[verb] = None
    return found


def _add(found: dict[str, Any], words: str, command: Any) -> None:
    found[words] = command
    for name, below in getattr(command, "commands", {}).items():
        _add(found, f"{words} {name}", below)


def _options(command: Any) -> dict[str, str]:
    """Options with their help."""
    options = {"--help": "Show this message and exit."}
    for param in getattr(command, "params", ()):
        if param.param_type_name == "option" and not param.hidden:
            about = (param.help or "").split("  [")[0]
            options |= dict.fromkeys((*param.opts, *param.secondary_opts), about)
    return options


def _below(found: dict[str, Any], words: str) -> list[str]:
    """Words that may follow, one level down."""
    start = f"{words} " if words else ""
    rest = [name.removeprefix(start) for name in found if name and name.startswith(start) and name != words]
    return [name for name in rest if " " not in name]


def _words() -> str:
    found = tree()
    lines = []
    for words, command in found.items():
        flags = [*_options(command), *(["--version"] if not words else [])]
        follow = shlex.quote(" ".join([*_below(found, words), *flags]))
        lines.append(f"    {shlex.quote(words)}) printf '%s\\n' {follow} ;;")
    return _WORDS % "\n".join(lines)


def _ids() -> tuple[str, str, str, str, str]:
    """What completes ids: behind ``--after``, behind the verbs for live jobs, and behind those for all."""
    live, any_job = "|*:".join(_WITH_LIVE_JOBS), "|*:".join(_WITH_ANY_JOBS)
    return _LIVE_IDS, live, _LIVE_IDS, any_job, _ANY_IDS


def _bash() -> str:
    return _BASH % (_words(), *_ids())


def _zsh() -> str:
    return _ZSH % (_words(), *_ids())


def _fish() -> str:
    found, lines = tree(), []
    for words, command in found.items():
        at = _fish_quoted(f"__trine_at {_fish_quoted(words)}")
        for name in _below(found, words):
            about = VERBS[name][1] if not words else (found[f"{words} {name}"].help or "").split("\n")[0]
            lines.append(f"complete -c trine -f -n {at} -a {name} -d {_fish_quoted(about)}")
        for option, about in _options(command).items():
            flag = f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
            values = f" -x -a {_fish_quoted(f'({_LIVE_IDS})')}" if option == _AFTER else ""
            lines.append(f"complete -c trine -n {at} {flag}{values} -d {_fish_quoted(about)}")
    for verb in (*_WITH_LIVE_JOBS, *_WITH_ANY_JOBS):
        ids = _fish_quoted(f"({_LIVE_IDS if verb in _WITH_LIVE_JOBS else _ANY_IDS})")
        lines.append(f"complete -c trine -f -n '__trine_at {verb}' -a {ids}")
    known = " ".join(shlex.quote(words) for words in found if words)
    return _FISH % (known, "\n".join(lines))


def _fish_quoted(text: str) -> str:
    """Fish knows no ``'"'"'``: backslashes and quotes are escaped."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
