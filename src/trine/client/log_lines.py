"""Bytes of a log as they arrive, turned into lines of text."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator


def lines(pieces: Iterable[bytes]) -> Iterator[str]:
    """Whole lines without their ends; what is no UTF-8 becomes a replacement character."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    rest = ""
    for piece in pieces:
        *whole, rest = (rest + decoder.decode(piece)).split("\n")
        yield from (line.removesuffix("\r") for line in whole)
    rest += decoder.decode(b"", final=True)
    if rest:
        yield rest
