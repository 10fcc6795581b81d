"""All objects of one kind, kept up to date: listed once, then watched with bookmarks. A watch that the server ends goes
on from the last version seen; one whose version is gone (410), or that was cut, begins with a list again."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from trine.executor.attempt.remote import EngineRefused, EngineUnreachable
from trine.executor.kubernetes.api import ApiRefused, KubernetesApi

_log = logging.getLogger(__name__)
_AGAIN_S, _LONGEST_AGAIN_S = 0.2, 5.0
_PAGE = 500
_GONE = 410


class Informer:
    """Calls ``changed`` after every list and every change, from its thread."""

    def __init__(
        self,
        api: KubernetesApi,
        path: str,
        changed: Callable[[], None],
        *,
        resync_s: float = 300.0,
        **selectors: str,
    ) -> None:
        self._api, self._path, self._changed, self._selectors = api, path, changed, selectors
        self._resync_s = resync_s
        self._lock = threading.Lock()
        self._objects: dict[str, dict[str, Any]] = {}
        self._trouble = "nothing was listed yet"
        self._version = ""
        self._closing, self._heard = threading.Event(), threading.Event()
        self.lists = 0
        """How often all of it was listed."""
        self.listed_s = float("-inf")
        """When the last list was asked for, on the monotonic clock."""
        self._thread = threading.Thread(target=self._run, name=f"trine-watch-{path.rpartition('/')[2]}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Its thread ends with the next word of the server, with ``end_watches`` of the API, or with the process."""
        self._closing.set()
        self._heard.set()

    def join(self, timeout_s: float) -> None:
        """Wait until its thread has ended, and with it its connection; so long at most."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def objects(self, wait_s: float = 0.0) -> dict[str, dict[str, Any]]:
        """By namespace and name. They must not be changed. ``EngineUnreachable`` while they are not up to date.
        ``wait_s``: how long the very first answer is waited for."""
        self._heard.wait(wait_s)
        with self._lock:
            if self._trouble:
                raise EngineUnreachable(self._trouble)
            return dict(self._objects)

    def _run(self) -> None:
        again_s = _AGAIN_S
        while not self._closing.is_set():
            try:
                self._follow()
                again_s = _AGAIN_S
            except ApiRefused as refusal:
                if refusal.status != _GONE:
                    self._note_trouble(str(refusal))
                self._version = ""
            except (EngineUnreachable, EngineRefused) as error:
                self._note_trouble(str(error))
                self._version = ""
            except Exception:  # of ours: the thread must go on, or nothing would be seen any more
                _log.exception("while watching %s", self._path)
                self._version = ""
            if not self._version:
                self._closing.wait(again_s)
                again_s = min(2 * again_s, _LONGEST_AGAIN_S)

    def _note_trouble(self, why: str) -> None:
        with self._lock:
            self._trouble = why
        self._heard.set()
        self._changed()

    def _follow(self) -> None:
        if not self._version or time.monotonic() - self.listed_s > self._resync_s:
            self._list()
        for event in self._api.watch(self._path, 60, resourceVersion=self._version, **self._selectors):
            if self._closing.is_set():
                return
            self._note(str(event.get("type")), event.get("object") or {})

    def _list(self) -> None:
        asked_s, found, query = time.monotonic(), {}, {"limit": _PAGE, **self._selectors}
        while True:
            page = self._api.get(self._path, **query)
            found.update({key_of(one): one for one in page.get("items", ())})
            if not (more := page["metadata"].get("continue")):
                break
            query["continue"] = more
        with self._lock:
            self._objects, self._version, self._trouble = found, str(page["metadata"]["resourceVersion"]), ""
            self.listed_s, self.lists = asked_s, self.lists + 1
        self._heard.set()
        self._changed()

    def _note(self, kind: str, found: Mapping[str, Any]) -> None:
        if kind == "ERROR":
            raise ApiRefused(int(found.get("code") or 0), str(found.get("message", "")))
        self._version = str(found["metadata"]["resourceVersion"])
        if kind == "BOOKMARK":
            return
        with self._lock:
            if kind == "DELETED":
                self._objects.pop(key_of(found), None)
            else:
                self._objects[key_of(found)] = dict(found)
        self._changed()


def key_of(found: Mapping[str, Any]) -> str:
    """Namespace and name."""
    return f"{found['metadata'].get('namespace', '')}/{found['metadata']['name']}"
