"""Tokens: made once, kept private, known by digest, revoked at once."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from tests.server.api.conftest import Start
from trine.core.errors import InputError
from trine.server.auth import Auth, add_user_token, open_auth, read_token, revoke_user_tokens, user_tokens


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "state"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_first_start_makes_a_private_token(state: Path) -> None:
    old_mask = os.umask(0)
    try:
        auth = open_auth(state)
    finally:
        os.umask(old_mask)
    assert (mode(state), mode(state / "token")) == (0o700, 0o600)
    assert len(read_token(state)) == 64
    caller = auth.caller(read_token(state))
    assert caller is not None and caller.admin
    assert sorted(path.name for path in state.iterdir()) == ["token"]


def test_later_starts_keep_it(state: Path) -> None:
    open_auth(state)
    token = read_token(state)
    assert open_auth(state).caller(token) == Auth(state).caller(token) is not None
    assert read_token(state) == token


@pytest.mark.parametrize("wrong", ["", "x", "0" * 64, "\ud800", "é" * 32])
def test_other_words_are_nobody(state: Path, wrong: str) -> None:
    auth = open_auth(state)
    assert auth.caller(wrong) is None
    assert auth.caller(read_token(state).upper()) is None
    assert auth.caller(read_token(state)[:-1]) is None


@pytest.mark.parametrize("name", ["token", "tokens.json"])
def test_a_token_that_others_may_read_is_refused(state: Path, name: str) -> None:
    open_auth(state)
    add_user_token(state, "anna")
    (state / name).chmod(0o644)
    with pytest.raises(InputError, match=r"others may read this token \(mode 644\); expected mode 600: run chmod 600"):
        open_auth(state)


def test_a_directory_that_others_may_change_is_refused(state: Path) -> None:
    state.mkdir(parents=True)
    state.chmod(0o777)
    with pytest.raises(InputError, match=r"others may write to this directory \(mode 777\)"):
        open_auth(state)
    assert not (state / "token").exists()


def test_a_link_or_a_half_token_is_refused(state: Path, tmp_path: Path) -> None:
    open_auth(state)
    (state / "token").write_text("abc")
    with pytest.raises(InputError, match="this is not a token"):
        open_auth(state)
    (state / "token").unlink()
    (state / "token").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="cannot be read"):
        open_auth(state)
    assert not (tmp_path / "elsewhere").exists()


def test_user_tokens_come_and_go_while_the_daemon_runs(state: Path) -> None:
    clock = Clock()
    auth = open_auth(state, clock)
    token = add_user_token(state, "anna")
    clock.now_s = 2.0
    caller = auth.caller(token)
    assert caller is not None and (caller.user, caller.admin) == ("anna", False)
    assert [entry.user for entry in user_tokens(state)] == ["anna"]
    revoke_user_tokens(state, "anna")
    clock.now_s = 4.0
    assert auth.caller(token) is None
    assert auth.caller(read_token(state)) is not None


def test_one_of_several_tokens_is_revoked_by_its_id(state: Path) -> None:
    open_auth(state)
    tokens = [add_user_token(state, user) for user in ("ben", "anna", "anna")]
    first = user_tokens(state)[0]
    assert [entry.user for entry in user_tokens(state)] == ["anna", "anna", "ben"]
    assert revoke_user_tokens(state, first.id) == [first]
    auth = open_auth(state)
    assert sorted(caller.user for token in tokens if (caller := auth.caller(token))) == ["anna", "ben"]
    with pytest.raises(InputError, match="no token of user or id 'carl'"):
        revoke_user_tokens(state, "carl")


def test_only_digests_are_kept(state: Path) -> None:
    open_auth(state)
    token = add_user_token(state, "anna")
    text = (state / "tokens.json").read_text()
    assert token not in text and list(json.loads(text).values()) == ["anna"]
    assert mode(state / "tokens.json") == 0o600


@pytest.mark.parametrize("user", ["", "a b", "../x", "x" * 33, "1x", "a\n"])
def test_users_have_plain_names(state: Path, user: str) -> None:
    open_auth(state)
    with pytest.raises(InputError, match="user: found"):
        add_user_token(state, user)


@pytest.mark.parametrize("text", ["", "[]", '{"x": "anna"}', '{"%s": 1}' % ("0" * 64), "[" * 100_000])
def test_a_damaged_list_stops_the_start_and_locks_users_out(state: Path, text: str) -> None:
    clock = Clock()
    auth = open_auth(state, clock)
    token = add_user_token(state, "anna")
    (state / "tokens.json").write_text(text)
    clock.now_s = 2.0
    assert auth.caller(token) is None
    assert auth.caller(read_token(state)) is not None
    with pytest.raises(InputError, match="not a list of tokens"):
        open_auth(state)


def test_real_tokens_open_the_api(state: Path, start: Start) -> None:
    auth = open_auth(state)
    server = start(auth=auth)
    assert server.client(read_token(state)).get("/v1/daemon").status_code == 200
    assert server.client("0" * 64).get("/v1/daemon").status_code == 401
