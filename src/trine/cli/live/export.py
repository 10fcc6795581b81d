"""Which variables of the submitter's environment go with a job: ``--export``.

A job should find the Python and the libraries that its submitter has, and none of the submitter's secrets: what goes
with a job is on record and can be read by administrators.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from trine.core.errors import InputError
from trine.inputs.job_rules import MAX_ENV_BYTES, MAX_ENV_ENTRIES, env_bytes, is_env_name, is_set_by_trine

DEFAULT = (
    *("PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONHASHSEED"),
    *("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "LANG", "LANGUAGE", "LC_*", "TZ"),
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NCCL_*", "PYTORCH_*"),
    *("XDG_CACHE_HOME", "TORCH_HOME", "HF_HOME", "HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE"),
    *("WANDB_DIR", "WANDB_MODE", "WANDB_PROJECT", "WANDB_ENTITY"),
)
"""What goes with a job if nothing is said: where programs and libraries are, language, threads, caches."""

_SECRET = re.compile(
    "TOKEN(?!IZER)|SECRET|KEY|PASSW|PASSPHRASE|CREDENTIAL|COOKIE|AUTH(?!OR)|PRIVATE|(^|_)(PAT|DSN)$", re.I
)
_SECRET_VALUE = re.compile(r"://[^/\s@]*:[^/\s@]+@")
"""A password in an address."""
_SESSION = re.compile(
    "HOME|USER|LOGNAME|SHELL|MAIL|_|PWD|OLDPWD|SHLVL|TMPDIR|HOSTNAME|PS[1-4]|PROMPT_COMMAND|LINES|COLUMNS|LS_COLORS|TERM.*"
    "|COLORTERM|DISPLAY|WAYLAND_DISPLAY|WINDOWID|TMUX.*|STY|SSH_.*|SUDO_.*|GPG_.*|DBUS_.*|XDG_(RUNTIME|SESSION|SEAT|VTNR).*"
    "|INVOCATION_ID|JOURNAL_STREAM|PET_.*|TORCHELASTIC_.*"
)
"""Of the submitter's session, or of a job it is submitted from."""
_EXPECTED = "none, all, default, or names such as PATH,WANDB_*; all are without secrets, which --env NAME passes"


def exported(choice: str | None, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that ``choice`` (the value of ``--export``) names; ``None``: those by default."""
    words = [word.strip() for word in ("default" if choice is None else choice).split(",")]
    if words == ["none"]:
        return {}
    names: dict[str, None] = {}
    for word in words:
        names |= dict.fromkeys(_named(word, environ))
    found = {name: environ[name] for name in sorted(names)}
    for name, value in found.items():
        if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
            raise InputError("--export", f"{name} is not text in UTF-8", "another value, or --export without it")
    return found


def check_size(env: Mapping[str, str], choice: str | None) -> None:
    """Refuse what no job may carry, and say what to do about it; nothing is left out silently."""
    limit = f"at most {MAX_ENV_ENTRIES} variables and {MAX_ENV_BYTES // 1000} kB in all"
    if len(env) > MAX_ENV_ENTRIES or env_bytes(env) > MAX_ENV_BYTES:
        found = f"{len(env)} variables of {env_bytes(env):,} bytes with those of --export {choice or 'default'}"
        raise InputError(
            "env", f"found {found}", f"{limit}; --export with the names that the job needs, or --export none"
        )


def _named(word: str, environ: Mapping[str, str]) -> Iterable[str]:
    if word == "default":
        return [name for pattern in DEFAULT for name in _matching(pattern, environ)]
    if word == "all":
        return [name for name in _matching("*", environ) if not _SESSION.fullmatch(name)]
    if word.endswith("*") and is_env_name(word[:-1]):
        return _matching(word, environ)
    if word == "none" or not is_env_name(word):
        raise InputError("--export", f"found {word!r}", _EXPECTED)
    if word not in environ:
        raise InputError("--export", f"{word} is not set here", _EXPECTED)
    if _is_secret(word, environ[word]):
        raise InputError("--export", f"{word} looks like a secret", f"--env {word} to pass it nevertheless")
    return [word]


def _matching(pattern: str, environ: Mapping[str, str]) -> list[str]:
    """Names that can be passed by a pattern: no secrets, and nothing that trine sets."""
    start = pattern.removesuffix("*")
    wanted = [name for name in environ if (name.startswith(start) if start != pattern else name == pattern)]
    return [
        name
        for name in wanted
        if is_env_name(name) and not is_set_by_trine(name) and not _is_secret(name, environ[name])
    ]


def _is_secret(name: str, value: str) -> bool:
    return bool(_SECRET.search(name) or _SECRET_VALUE.search(value))
