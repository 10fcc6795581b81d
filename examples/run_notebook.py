"""Runs the cells of a notebook in order, without Jupyter: keeps what they show in the file, or checks what it keeps.

    python examples/run_notebook.py examples/compare_policies.ipynb            # run, and store what the cells show
    python examples/run_notebook.py --check examples/compare_policies.ipynb    # run, and compare with what is stored

Cells run in a fresh ``__main__`` as in a kernel, in the directory of the notebook. Views above 100 kB, such as plots
with their script, are not stored: a notebook in the repository stays small.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

MOST_STORED = 100_000


def main() -> None:
    check, paths = "--check" in sys.argv[1:], [Path(word).resolve() for word in sys.argv[1:] if word != "--check"]
    if len(paths) != 1 or not paths[0].is_file():
        sys.exit("expected the path of one notebook")
    kept = json.loads(paths[0].read_text(encoding="utf-8"))
    os.chdir(paths[0].parent)
    cells = [cell for cell in kept["cells"] if cell["cell_type"] == "code"]
    fresh = _run(["".join(cell["source"]) for cell in cells])
    changed = [i for i, cell in enumerate(cells) if cell["outputs"] != fresh[i]]
    if check:
        if changed:
            sys.exit(f"{paths[0].name}: code cell {changed[0] + 1} shows something else than is stored")
        return
    for i, cell in enumerate(cells):
        cell["outputs"], cell["execution_count"] = fresh[i], i + 1
    paths[0].write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _run(sources: list[str]) -> list[list[dict[str, Any]]]:
    """What each cell shows."""
    # As in a kernel, no file stands behind the main module: processes that are started cannot import it.
    main_module = ModuleType("__main__")
    sys.modules["__main__"] = main_module
    return [_shown(source, i + 1, vars(main_module)) for i, source in enumerate(sources)]


def _shown(source: str, number: int, names: dict[str, Any]) -> list[dict[str, Any]]:
    """Run one cell: what it prints, and the value of its last expression."""
    tree = ast.parse(source, f"<cell {number}>")
    last: Any = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(tree, f"<cell {number}>", "exec"), names)
        value = None if last is None else eval(compile(ast.Expression(last.value), f"<cell {number}>", "eval"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": _lines(printed.getvalue())})
    if value is not None:
        data = {kind: _lines(text) for kind, text in _views(value).items()}
        outputs.append({"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"})
    return outputs


def _views(value: Any) -> dict[str, str]:
    views = {"text/plain": repr(value)}
    if hasattr(value, "_repr_html_"):
        html = value._repr_html_()
        views |= {"text/html": html} if len(html) <= MOST_STORED else {}
    return views


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


if __name__ == "__main__":
    main()
