"""Opens a page of ours in the user's browser, logged in, without a secret in a command line or in an address.

The code goes through a file that only the user can read; other users of the machine see the arguments of programs.
"""

from __future__ import annotations

import html
import os
import sys
from pathlib import Path

_PAGE = """<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={address}"><title>trine</title><a href="{address}">trine</a>
"""


def open_logged_in(url: str, code: str) -> bool:
    """Open the dashboard at ``url`` with a code that is good once; false if there is no browser here."""
    import webbrowser

    from trine.core.atomic_file import make_private_dir, write_private

    if not _has_screen():
        return False
    try:
        browser = webbrowser.get()
        file = _cache() / "dashboard.html"
        make_private_dir(file.parent)
        write_private(file, _PAGE.format(address=html.escape(f"{url}/ui#code={code}", quote=True)))
        return browser.open(file.as_uri())
    except (webbrowser.Error, OSError):
        return False


def how_to_log_in(url: str, code: str) -> str:
    """What to do by hand."""
    return f"{url}/ui\nLog in with the code {code}, which is good once and for five minutes."


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "trine"


def _has_screen() -> bool:
    """Browsers for terminals run no scripts, and would take the terminal."""
    wanted = os.environ.get("BROWSER") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return bool(wanted) or sys.platform == "darwin"
