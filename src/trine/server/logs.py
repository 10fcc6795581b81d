"""Structured logs of the daemon on stderr: one line per event, for people or as JSON. Tokens never get here."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog

_SECRET = ("token", "authorization", "secret", "password")


def configure(as_json: bool, quiet: bool = False) -> None:
    """Set up logging for the process."""
    level = logging.WARNING if quiet else logging.INFO
    last: Any = structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer(colors=False)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            scrub,
            last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def scrub(_: Any, __: str, event: Any) -> Any:
    """Whatever is called like a secret is not shown."""
    for name in event:
        if any(word in name.lower() for word in _SECRET):
            event[name] = "***"
    return event
