"""Arrow tables, and the step from there to pandas where it is installed. Both are imported when they are asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from trine.core.errors import MissingExtraError, require_extra


def arrow_table(columns: Mapping[str, Sequence[Any]]) -> Any:
    """A ``pyarrow.Table`` with these columns; types are those of the values."""
    require_extra("notebook", "pyarrow", purpose="tables need")
    import pyarrow as pa

    return pa.table({name: list(values) for name, values in columns.items()})


def table_of_rows(rows: Sequence[Mapping[str, Any]]) -> Any:
    """The same from one mapping per row; a key that a row lacks is null there."""
    names = dict.fromkeys(name for row in rows for name in row)
    return arrow_table({name: [row.get(name) for row in rows] for name in names})


def pandas_frame(table: Any) -> Any:
    """A table as ``pandas.DataFrame``."""
    if find_spec("pandas") is None:
        raise MissingExtraError(
            "to_pandas needs pandas, which is not installed: pip install pandas; tables are Arrow without it"
        )
    return table.to_pandas()
