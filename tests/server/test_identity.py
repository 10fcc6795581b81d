"""Whose state directory it is: the same after a move and a restore, another one after a copy."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

import pytest

from trine.core.errors import InputError
from trine.server import daemon
from trine.server.configuration import Options
from trine.server.state_directory import CopiedStateError, owner_of
from trine.server.store import StoreInUseError


@pytest.fixture
def state(tmp_path: Path) -> Path:
    home = tmp_path / "state"
    home.mkdir()
    return home


def test_a_state_directory_has_one_identity_that_only_its_owner_reads(state: Path) -> None:
    owner = owner_of(state)
    assert owner_of(state) == owner and len(owner.id) == 32
    assert stat.S_IMODE((state / "identity").stat().st_mode) == 0o600
    assert [path.name for path in state.iterdir()] == ["identity"]


def test_a_move_and_a_restore_in_place_keep_it(state: Path, tmp_path: Path) -> None:
    owner = owner_of(state)
    moved = state.rename(tmp_path / "moved")
    assert owner_of(moved).id == owner.id
    shutil.copytree(moved, state)
    assert owner_of(state).id == owner.id


def test_a_copy_is_refused_until_it_takes_over(state: Path, tmp_path: Path) -> None:
    owner = owner_of(state)
    copy = shutil.copytree(state, tmp_path / "copy")
    with pytest.raises(CopiedStateError, match=rf"is a copy of {state} on host .*--take-over"):
        owner_of(copy)
    taken = owner_of(copy, take_over=True)
    assert taken.id != owner.id and owner_of(copy) == taken
    assert owner_of(state) == owner


def test_a_link_or_nonsense_in_its_place_is_refused(state: Path, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("{}")
    (state / "identity").symlink_to(tmp_path / "other")
    with pytest.raises(InputError, match="identity: cannot be read"):
        owner_of(state)
    (state / "identity").unlink()
    (state / "identity").write_text("[]")
    with pytest.raises(InputError, match="not what `trine up` wrote"):
        owner_of(state)


def test_a_second_state_directory_on_the_same_journal_is_refused_by_name(state: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shared.db'}"
    daemon.open_store(Options(state, store=url)).close()
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(StoreInUseError, match=rf"belongs to the daemon of {state} on host .*--take-over"):
        daemon.open_store(Options(other, store=url))
    daemon.open_store(Options(other, store=url, take_over=True)).close()
    daemon.open_store(Options(other, store=url)).close()
    with pytest.raises(StoreInUseError, match=f"belongs to the daemon of {other} "):
        daemon.open_store(Options(state, store=url))
