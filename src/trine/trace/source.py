"""From the path of a trace to its text and first line, by which formats and files that are no traces are recognised."""

from __future__ import annotations

import io
import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from trine.core.errors import InputError
from trine.inputs.csv_table import table_lines

NO_TABLE = ("{", "[", ";")
GZIP_MAGIC = b"\x1f\x8b"
A_TRACE = "a job trace as CSV, tab-separated text, SWF or JSON, plain or gzip'ed"

OTHER_MAGIC = {
    b"PK\x03\x04": "a zip archive",
    b"PAR1": "a Parquet file",
    b"\xfd7zXZ": "an xz archive",
    b"BZh": "a bzip2 archive",
    b"\x28\xb5\x2f\xfd": "a zstd archive",
    b"SQLite format": "an SQLite database",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
}


@dataclass(frozen=True, slots=True)
class FirstLine:
    """The beginning of a file, as much as it takes to tell its format."""

    source: str
    line: int
    """Number of the first line that is not empty."""
    text: str
    """That line."""
    fields: tuple[str, ...]
    """It, split at commas."""
    tab_fields: tuple[str, ...]
    """It, split at tabs."""
    whole: str
    """The whole text: formats without a header are recognised by more than a line."""

    @property
    def where(self) -> str:
        return f"{self.source}:{self.line}"


def read_text(path: str | Path) -> str:
    """The file's text, unpacked and decoded; whatever prevents that is an ``InputError``."""
    source = str(path)
    data = _unpacked(source, _bytes(source))
    for magic, kind in OTHER_MAGIC.items():
        if data.startswith(magic):
            raise InputError(source, kind, A_TRACE)
    if data[257:262] == b"ustar":
        raise InputError(source, "a tar archive", "one of the files in it, unpacked with tar -xf")
    if b"\0" in data:
        line = data.count(b"\n", 0, data.index(b"\0")) + 1
        raise InputError(f"{source}:{line}", "binary data", A_TRACE)
    return _decoded(source, data)


def _bytes(source: str) -> bytes:
    try:
        return Path(source).read_bytes()
    except FileNotFoundError:
        raise InputError(source, "no such file", "the path of a trace file") from None
    except IsADirectoryError:
        raise InputError(source, "a directory", "a trace file") from None
    except PermissionError:
        raise InputError(source, "the file may not be read", "a readable trace file") from None
    except (OSError, ValueError) as error:
        raise InputError(source, f"cannot be read ({error})", "a readable trace file") from None


def _unpacked(source: str, data: bytes) -> bytes:
    if not data.startswith(GZIP_MAGIC):
        return data
    import gzip

    try:
        return gzip.decompress(data)
    except EOFError:
        raise InputError(source, "the gzip stream ends early", "a complete gzip file") from None
    except (OSError, zlib.error) as error:
        raise InputError(source, f"the gzip stream is damaged ({error})", "an intact gzip file") from None


def _decoded(source: str, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"{source}:{line}", f"byte 0x{data[error.start]:02x} is not UTF-8", "UTF-8 text") from None


def first_line(source: str, text: str) -> FirstLine:
    """The first line that is not empty, cut both ways."""
    for number, line in enumerate(io.StringIO(text, newline=None), 1):
        if line.strip():
            line = line.rstrip("\n")
            # What JSON and SWF begin with need not be well-formed CSV.
            cells = [] if line.lstrip()[:1] in NO_TABLE else next(table_lines(source, line), (0, []))[1]
            fields = tuple(cell.strip() for cell in cells)
            return FirstLine(source, number, line, fields, tuple(line.split("\t")), text)
    raise InputError(source, "an empty file", A_TRACE)


class Lookalike(NamedTuple):
    """A kind of file found beside job traces, known by columns that must all be there (and, if ``only``, no others)."""

    what: str
    columns: frozenset[str]
    taken_by: str = ""
    only: bool = False

    def __str__(self) -> str:
        return f"{self.what}, which {self.taken_by or 'no option'} takes"


LOOKALIKES = (
    Lookalike("a sample of GPU times", frozenset({"duration"}), "--set sample=", only=True),
    Lookalike("a list of nodes", frozenset({"sn", "cpu_milli", "gpu"}), "--cluster"),
    Lookalike("a list of machines", frozenset({"machineId", "number of GPUs"}), "--cluster"),
    Lookalike("a cluster shape", frozenset({"num_switch", "num_node_p_switch", "num_gpu_p_node"}), "--cluster"),
    Lookalike("a network topology", frozenset({"ip", "DSW", "PSW", "ASW"}), "--cluster"),
    Lookalike("the GPUs of virtual clusters by day", frozenset({"date", "total"})),
    Lookalike("a table of a cumulative distribution", frozenset({"x", "cdf_percent"})),
    Lookalike("a summary of clusters", frozenset({"id", "job_num", "gpu_job_num"})),
    Lookalike("measured slowdowns of GPUs", frozenset({"uuid", "perf"}), "--variability"),
    Lookalike("measured slowdowns of GPUs", frozenset({"PerfVar_classA"}), "--variability"),
    Lookalike("the GPUs of a world", frozenset({"gpu", "node", "rack", "type"}), "--variability"),
    Lookalike("the jobs of a world", frozenset({"job_id", "submit_s", "work_s_on_v100"}), "--world DIR"),
    Lookalike("the results of a run", frozenset({"job_id", "start_s", "finish_s"})),
)


JSON = Lookalike("JSON", frozenset(), "--throughputs (throughput tables)")


def is_json(sample: FirstLine) -> bool:
    return sample.text.lstrip()[:1] in ("{", "[")


def is_table_of_types(sample: FirstLine) -> bool:
    """An object of objects, as throughput tables are: a GPU type, then what runs there."""
    return re.match(r'\s*\{\s*"[^"]*"\s*:\s*\{', sample.text) is not None


def recognise(sample: FirstLine) -> Lookalike | None:
    """What the file is, if it is something we know and not a job trace."""
    found = set(sample.fields)
    for kind in LOOKALIKES:
        if kind.columns <= found and not (kind.only and kind.columns != found):
            return kind
    return None
