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
"""The option of ``submit`` that takes ids, after `any:` and such, and several with commas between them."""
_ANY = "--all --limit 200"
"""Ids for verbs that take ended jobs, too: those that can still change first, then the newest that have ended."""

_WORDS = """\
_trine_words() {
  case "$1" in
%s
    *) return 1 ;;
  esac
}
_trine_valued() {
  case "$1" in
%s
  esac
}
_trine_ids() {
  trine queue "$@" 2>/dev/null | awk 'NR > 1 { print $2 }'
}
"""
"""What may follow some words, which of their options take a value, and ids of jobs; for bash and zsh."""

_BASH = """\
# Completion of trine in bash; for this shell: source <(trine completion bash)
%s
_trine() {
  local words=() state=() verb="" flag="" glue="" lead="" hidden="-*" found="" cur word i
  COMPREPLY=()
  for word in "${COMP_WORDS[@]:1:COMP_CWORD}"; do  # bash takes --after=any:17 apart
    if [[ ("$word" == [=:]* || -n "$glue") && ${#words[@]} -gt 0 ]]; then
      words[${#words[@]}-1]+="$word"
    else
      words+=("$word")
    fi
    glue=""
    [[ "$word" == *[=:] ]] && glue=1
  done
  for ((i = 0; i < ${#words[@]} - 1; i++)); do
    word="${words[i]}"
    if [[ -n "$flag" ]]; then
      [[ "$flag" == --state ]] && state=(--state "${word/#\\~/$HOME}")
      flag=""
    elif [[ "$word" == -- ]]; then
      return
    elif [[ "$word" == --state=* ]]; then
      word="${word#*=}"
      state=(--state "${word/#\\~/$HOME}")
    elif [[ "$word" == -* ]]; then
      [[ " $(_trine_valued "$verb") " == *" $word "* ]] && flag="$word"
    elif _trine_words "${verb:+$verb }$word" >/dev/null; then
      verb="${verb:+$verb }$word"
    fi
  done
  cur="${words[${#words[@]}-1]}"
  if [[ "$cur" == --*=* ]]; then
    flag="${cur%%%%=*}"
  fi
  case "${flag:-$verb}" in
    --after)
      cur="${cur##*[=:]}"
      [[ "$cur" == *,* ]] && lead="${cur%%,*},"
      found="$(_trine_ids "${state[@]}")" ;;
    -*) return ;;
    %s) [[ "$cur" == -* ]] || found="$(_trine_ids "${state[@]}")" ;;
    %s) [[ "$cur" == -* ]] || found="$(_trine_ids %s "${state[@]}")" ;;
    *) [[ "$cur" == -* ]] || found="$(_trine_words "$verb")" ;;
  esac
  if [[ -z "$flag" && "$cur" == -* ]]; then
    found="$(_trine_words "$verb")"
    hidden=""
  fi
  COMPREPLY=($(compgen -W "$found" -X "$hidden" -P "$lead" -- "${cur##*,}"))
}
complete -o default -F _trine trine
"""

_ZSH = """\
#compdef trine
# Completion of trine in zsh; for this shell, after compinit: source <(trine completion zsh)
%s
_trine() {
  local verb="" flag="" word cur="${words[CURRENT]}" i
  local -a state found
  for ((i = 2; i < CURRENT; i++)); do
    word="${words[i]}"
    if [[ -n "$flag" ]]; then
      [[ "$flag" == --state ]] && state=(--state ${~word})
      flag=""
    elif [[ "$word" == -- ]]; then
      _files
      return
    elif [[ "$word" == --state=* ]]; then
      word="${word#*=}"
      state=(--state ${~word})
    elif [[ "$word" == -* ]]; then
      [[ " $(_trine_valued "$verb") " == *" $word "* ]] && flag="$word"
    elif _trine_words "${verb:+$verb }$word" >/dev/null; then
      verb="${verb:+$verb }$word"
    fi
  done
  if [[ "$cur" == --*=* ]]; then
    flag="${cur%%%%=*}"
    compset -P '*='
  fi
  case "${flag:-$verb}" in
    --after)
      compset -P '*[:,]'
      found=(${(f)"$(_trine_ids $state)"}) ;;
    -*) ;;
    %s) [[ "$cur" == -* ]] || found=(${(f)"$(_trine_ids $state)"}) ;;
    %s) [[ "$cur" == -* ]] || found=(${(f)"$(_trine_ids %s $state)"}) ;;
    *) found=(${=$(_trine_words "$verb")}) ;;
  esac
  if [[ -z "$flag" && "$cur" == -* ]]; then
    found=(${=$(_trine_words "$verb")})
  elif [[ -z "$flag" ]]; then
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
function __trine_ids
  set -l words (commandline -opc)
  set -l state (string match -r -- '^--state=.*' $words)[-1]
  if set -l at (contains -i -- --state $words)
    set state --state=$words[(math $at + 1)]
  end
  trine queue $argv (string replace -- '=~/' "=$HOME/" $state) 2>/dev/null | awk 'NR > 1 { print $2 }'
end
function __trine_after
  set -l lead (string match -r '^.*[:,]' -- (string replace -- '--after=' '' (commandline -ct)))
  for id in (__trine_ids)
    echo "$lead$id"
  end
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


def _valued(command: Any) -> list[str]:
    """Options behind which a value comes, as a word of its own."""
    options = [param for param in getattr(command, "params", ()) if param.param_type_name == "option"]
    return [name for param in options if not (param.is_flag or param.count) for name in param.opts]


def _words() -> str:
    found = tree()
    lines, valued = [], []
    for words, command in found.items():
        flags = [*_options(command), *(["--version"] if not words else [])]
        follow = shlex.quote(" ".join([*_below(found, words), *flags]))
        lines.append(f"    {shlex.quote(words)}) printf '%s\\n' {follow} ;;")
        if options := _valued(command):
            valued.append(f"    {shlex.quote(words)}) printf '%s\\n' {shlex.quote(' '.join(options))} ;;")
    return _WORDS % ("\n".join(lines), "\n".join(valued))


def _script(template: str) -> str:
    return template % (_words(), "|".join(_WITH_LIVE_JOBS), "|".join(_WITH_ANY_JOBS), _ANY)


def _bash() -> str:
    return _script(_BASH)


def _zsh() -> str:
    return _script(_ZSH)


def _fish() -> str:
    found, lines = tree(), []
    for words, command in found.items():
        at = _fish_quoted(f"__trine_at {_fish_quoted(words)}")
        for name in _below(found, words):
            about = VERBS[name][1] if not words else (found[f"{words} {name}"].help or "").split("\n")[0]
            lines.append(f"complete -c trine -f -n {at} -a {name} -d {_fish_quoted(about)}")
        for option, about in _options(command).items():
            flag = f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
            values = " -x -a '(__trine_after)'" if option == _AFTER else " -r -F" if option in _valued(command) else ""
            lines.append(f"complete -c trine -n {at} {flag}{values} -d {_fish_quoted(about)}")
    for verb in (*_WITH_LIVE_JOBS, *_WITH_ANY_JOBS):
        ids = "(__trine_ids)" if verb in _WITH_LIVE_JOBS else f"(__trine_ids {_ANY})"
        lines.append(f"complete -c trine -f -n '__trine_at {verb}' -a '{ids}'")
    known = " ".join(shlex.quote(words) for words in found if words)
    return _FISH % (known, "\n".join(lines))


def _fish_quoted(text: str) -> str:
    """Fish knows no ``'"'"'``: backslashes and quotes are escaped."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
