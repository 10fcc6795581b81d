"""Sessions of browsers: short, revocable, two secrets, only digests on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from trine.server.interface import Caller
from trine.server.sessions import (
    CODE_S,
    IDLE_S,
    LONGEST_S,
    MAX_CODES,
    MAX_GUESSES,
    MAX_OF_ONE_TOKEN,
    MAX_SESSIONS,
    Login,
    Sessions,
    digest,
)

TOKEN = "a" * 64
ADA = Caller("ada")


class Clock:
    now = 1e9

    def __call__(self) -> float:
        return self.now


class Tokens(dict[str, Caller]):
    """Callers by the digest of their token."""


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tokens() -> Tokens:
    return Tokens({digest(TOKEN): ADA})


@pytest.fixture
def sessions(clock: Clock, tokens: Tokens, tmp_path: Path) -> Sessions:
    return Sessions(tokens.get, tmp_path / "sessions.json", clock)


def begun(sessions: Sessions, secret: str = TOKEN) -> Login:
    made = sessions.login(secret)
    assert made is not None
    return made


def test_both_secrets_are_needed(sessions: Sessions) -> None:
    made = begun(sessions)
    assert sessions.caller(made.cookie, made.proof) == ADA
    assert sessions.caller(made.cookie, "") is None and sessions.caller("", made.proof) is None
    assert sessions.caller(made.cookie, begun(sessions).proof) is None
    assert sessions.login("b" * 64) is None


def test_a_session_ends_by_itself(sessions: Sessions, clock: Clock) -> None:
    idle, used = begun(sessions), begun(sessions)
    for _ in range(int(LONGEST_S / IDLE_S) * 2 - 1):
        clock.now += IDLE_S / 2
        assert sessions.caller(used.cookie, used.proof) == ADA
    assert sessions.caller(idle.cookie, idle.proof) is None
    clock.now += IDLE_S / 2
    assert sessions.caller(used.cookie, used.proof) is None


def test_logging_out_everywhere_and_a_revoked_token_end_sessions(sessions: Sessions, tokens: Tokens) -> None:
    first, second = begun(sessions), begun(sessions)
    sessions.end(first.cookie)
    assert sessions.caller(first.cookie, first.proof) is None and sessions.caller(second.cookie, second.proof) == ADA
    assert sessions.end_all(ADA) == 1 and sessions.caller(second.cookie, second.proof) is None
    third = begun(sessions)
    tokens.clear()
    assert sessions.caller(third.cookie, third.proof) is None


def test_sessions_outlive_a_restart_and_the_file_holds_no_secret(
    sessions: Sessions, tokens: Tokens, clock: Clock, tmp_path: Path
) -> None:
    made = begun(sessions)
    file = tmp_path / "sessions.json"
    for secret in (TOKEN, made.cookie, made.proof):
        assert secret not in file.read_text()
    assert file.stat().st_mode & 0o077 == 0
    assert Sessions(tokens.get, file, clock).caller(made.cookie, made.proof) == ADA
    file.write_text('{"damaged": 1}')
    assert Sessions(tokens.get, file, clock).caller(made.cookie, made.proof) is None


def test_a_code_is_good_once_and_for_a_while(sessions: Sessions, clock: Clock) -> None:
    code, _ = sessions.new_code(digest(TOKEN))
    assert sessions.login(code.lower().replace("-", " ")) is not None, "people type them"
    assert sessions.login(code) is None
    late, ends_s = sessions.new_code(digest(TOKEN))
    assert ends_s == clock.now + CODE_S
    clock.now += CODE_S
    assert sessions.login(late) is None


def test_guessing_voids_the_codes(sessions: Sessions) -> None:
    code, _ = sessions.new_code(digest(TOKEN))
    for number in range(MAX_GUESSES):
        assert sessions.login(f"guess{number}") is None
    assert sessions.login(code) is None


def test_who_logs_in_too_often_loses_their_own_sessions(tokens: Tokens, clock: Clock) -> None:
    tokens[digest("b" * 64)] = Caller("bob")
    sessions = Sessions(tokens.get, None, clock)
    of_bob, first = begun(sessions, "b" * 64), begun(sessions)
    for _ in range(MAX_OF_ONE_TOKEN):
        last = begun(sessions)
    assert sessions.caller(first.cookie, first.proof) is None
    assert sessions.caller(last.cookie, last.proof) == ADA
    assert sessions.caller(of_bob.cookie, of_bob.proof) == Caller("bob")


def test_the_number_of_sessions_is_bounded(tokens: Tokens, clock: Clock) -> None:
    secrets = [f"{number:064d}" for number in range(MAX_SESSIONS // MAX_OF_ONE_TOKEN + 1)]
    tokens.update({digest(secret): Caller(secret) for secret in secrets})
    sessions = Sessions(tokens.get, None, clock)
    first = begun(sessions)
    for secret in secrets:
        for _ in range(MAX_OF_ONE_TOKEN):
            begun(sessions, secret)
    assert sessions.caller(first.cookie, first.proof) is None


def test_a_full_disk_costs_no_request(tokens: Tokens, clock: Clock, tmp_path: Path) -> None:
    sessions = Sessions(tokens.get, tmp_path / "missing" / "sessions.json", clock)
    made = begun(sessions)
    clock.now += IDLE_S / 2
    assert sessions.caller(made.cookie, made.proof) == ADA


def test_who_asks_for_code_after_code_voids_none_of_another_user(tokens: Tokens, clock: Clock) -> None:
    tokens[digest("b" * 64)] = Caller("bob")
    sessions = Sessions(tokens.get, None, clock)
    of_bob, _ = sessions.new_code(digest("b" * 64))
    own = [sessions.new_code(digest(TOKEN))[0] for _ in range(MAX_CODES)]
    assert sessions.login(of_bob) is not None
    assert sessions.login(own[0]) is None and sessions.login(own[-1]) is not None
