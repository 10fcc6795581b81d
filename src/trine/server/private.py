"""Files that only their owner may read, replaced in one step: a crash leaves the old one or the new one, never half."""

from __future__ import annotations

import os
from pathlib import Path


def write_private(path: Path, text: str) -> None:
    """Write ``path`` (mode 600), synced to disk; whatever stood there before is replaced, links are not followed."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    create_private(draft, text)
    draft.replace(path)


def create_private(path: Path, text: str) -> None:
    """A new file of mode 600, synced to disk."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as stream:
        os.fchmod(stream.fileno(), 0o600)
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())


def make_private_dir(path: Path) -> None:
    """A directory of ours alone. What is missing above it is made so that no umask lets others write there."""
    missing = [above for above in path.parents if not above.exists()]
    for above in reversed(missing):
        above.mkdir(exist_ok=True)
        above.chmod(0o755)
    path.mkdir(mode=0o700, exist_ok=True)
