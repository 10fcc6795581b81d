"""Removes directories that jobs could write to. Whatever a job has put there (links, pipes, a thousand levels of
directories) neither leads elsewhere nor holds up or harms the removal."""

from __future__ import annotations

import errno
import os
import secrets
import stat
import threading
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class BackgroundRemoval:
    """Removes directories in a thread of its own, however large: the caller waits for a rename only.

    What is to be removed is moved to ``aside`` first, a directory of the daemon's own on the same file system. There
    the next process finds what this one did not get to.
    """

    def __init__(self, aside: Path) -> None:
        self._aside = aside
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, path: Path) -> None:
        """Remove ``path``, a directory, soon. OSError if it cannot even be moved: then it stays where it is."""
        self._aside.mkdir(mode=0o700, exist_ok=True)
        path.rename(self._aside / secrets.token_hex(8))
        self.start()

    def start(self) -> None:
        """Remove what is there, unless that is under way. What resists is tried again with the next that is added."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="removal", daemon=True)
                self._thread.start()

    def join(self) -> None:
        """Wait until all that was added is gone or has resisted."""
        if thread := self._thread:
            thread.join()

    def _run(self) -> None:
        resists: set[str] = set()
        while names := self._next(resists):
            for name in names:
                try:
                    remove_tree(self._aside, name)
                except OSError:
                    resists.add(name)

    def _next(self, resists: set[str]) -> list[str]:
        # Under the lock: a directory that is added then either is seen here or starts another thread.
        with self._lock:
            names: list[str] = []
            with suppress(OSError):
                names = [path.name for path in self._aside.iterdir() if path.name not in resists]
            if not names:
                self._thread = None
            return names


def remove_tree(parent: Path, name: str) -> None:
    """Remove the directory ``name`` of ``parent`` and all below. Follows no link and leaves no file system.

    Parts of the tree belong to a job's user, who may change them meanwhile or have nested them deeper than there are
    descriptors: every directory is moved up to the top, where only the daemon writes, before it is looked into.
    """
    with _opened(parent) as above, _opened(name, above.fd) as top:
        names = map(f".{secrets.token_hex(8)}-{{}}".format, count())
        waiting = top.empty(top, names)
        while waiting:
            one = waiting.pop()
            try:
                with _opened(one, top.fd) as below:
                    if below.device == top.device:
                        waiting += below.empty(top, names)
            except NotADirectoryError:  # something else was put in its place
                os.unlink(one, dir_fd=top.fd)
            else:
                os.rmdir(one, dir_fd=top.fd)
        os.rmdir(name, dir_fd=above.fd)


class _opened:  # noqa: N801 - used like a function
    """A directory by its descriptor."""

    def __init__(self, path: str | Path, dir_fd: int | None = None) -> None:
        try:
            self.fd = os.open(path, _OPEN_DIRECTORY, dir_fd=dir_fd)
        except OSError as error:
            if error.errno == errno.ELOOP:  # a link
                raise NotADirectoryError(errno.ENOTDIR, "is a link", str(path)) from None
            raise
        self.device = os.fstat(self.fd).st_dev

    def __enter__(self) -> _opened:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)

    def empty(self, top: _opened, names: Iterator[str]) -> list[str]:
        """Remove all files; directories go to ``top`` under new ``names``, which are returned."""
        found: list[str] = []
        for name in os.listdir(self.fd):  # noqa: PTH208 - by descriptor
            with suppress(FileNotFoundError):
                if stat.S_ISDIR(os.stat(name, dir_fd=self.fd, follow_symlinks=False).st_mode):
                    if self is not top:
                        to = next(names)
                        os.rename(name, to, src_dir_fd=self.fd, dst_dir_fd=top.fd)
                        name = to
                    found.append(name)
                else:
                    os.unlink(name, dir_fd=self.fd)
        return found
