"""Notebooks of example scripts: cells begin at lines `# %%`, texts at `# %% [markdown]`.

In: a script of `examples/`. Out: the JSON of a notebook without results. Invariant: the code of the cells is the
script's, in its order; written by tools/write_docs.py, which says so when one is stale.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

SCRIPTS = ("examples/tune_relay_arm.py",)
_CELL, _TEXT = "# %%", "# %% [markdown]"


def notebook(script: Path) -> str:
    """The notebook of a script; its docstring is the first cell."""
    text = script.read_text("utf-8")
    title = ast.get_docstring(ast.parse(text)) or script.stem
    cells = [_cell("markdown", title.splitlines())]
    kind, lines = "", list[str]()
    for line in [*text.splitlines(), _CELL]:
        if line.startswith(_CELL):
            if kind and any(part.strip() for part in lines):
                cells.append(_cell(kind, lines))
            kind, lines = "markdown" if line == _TEXT else "code", []
        else:
            lines.append(line.removeprefix("# ") if kind == "markdown" else line)
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    book = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(book, indent=1) + "\n"


def _cell(kind: str, lines: list[str]) -> dict[str, object]:
    source = "\n".join(lines).strip("\n").splitlines(keepends=True)
    code = {"execution_count": None, "outputs": []} if kind == "code" else {}
    return {"cell_type": kind, "metadata": {}, "source": source, **code}


def notebooks(root: Path) -> dict[str, Callable[[], str]]:
    """The files and what makes their texts."""
    return {str(Path(name).with_suffix(".ipynb")): partial(notebook, root / name) for name in SCRIPTS}
