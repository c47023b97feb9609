"""Count which imports and names of scripts written for the releases with Relay are found here.

    python tools/script_census.py FOLDER …    # of public scripts: .py files and notebooks

In: folders. Out: on standard output, the share of import lines and of uses of names that `armillary` has, and those
that it has not, most used first. Invariant: a name counts once for each place that uses it, by its longest part that is
looked up (`tvm.te.compute`, however it was imported); `tvm` stands for `armillary`, what a script defines is not
counted, nothing of a script is run. Names by how many files use them: tools/migration.py.
"""

from __future__ import annotations

import ast
import json
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tools.migration import exists, refusal

_ROOTS = ("tvm", "topi")
_MODERN = frozenset(["relax", "ffi", "dlight", "testing", "contrib.hexagon"])  # no parts of the releases with Relay


def sources(folder: Path) -> Iterator[str]:
    """The text of each script; of a notebook its cells of code."""
    for path in sorted(folder.rglob("*.py")):
        yield path.read_text("utf-8", errors="replace")
    for path in sorted(folder.rglob("*.ipynb")):
        try:
            cells = json.loads(path.read_text("utf-8", errors="replace")).get("cells", [])
        except ValueError:
            continue
        lines = [line for cell in cells if cell.get("cell_type") == "code" for line in [*cell.get("source", []), "\n"]]
        yield "".join(line for line in lines if not line.lstrip().startswith(("%", "!")))


class _Names(ast.NodeVisitor):
    """Import lines (the names that each brings), and uses of names by their full paths."""

    def __init__(self) -> None:
        self.imports: list[tuple[str, ...]] = []
        self.uses: list[str] = []
        self._known: dict[str, str] = {}  # local name -> path below tvm

    def visit_Import(self, node: ast.Import) -> None:
        paths = []
        for alias in node.names:
            if (path := _below(alias.name)) is not None:
                paths.append(path)
                self._known[alias.asname or alias.name.split(".")[0]] = (
                    path if alias.asname else _below_root(alias.name)
                )
        self._note(paths)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = _below(node.module or "") if node.level == 0 else None
        if module is None:
            return
        names = [alias for alias in node.names if alias.name != "*"]
        for alias in names:
            self._known[alias.asname or alias.name] = _joined(module, alias.name)
        self._note([_joined(module, alias.name) for alias in names] or [module])

    def _note(self, paths: list[str]) -> None:
        counted = tuple(path for path in paths if _is_counted(path))
        if counted:
            self.imports.append(counted)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        parts, inner = [node.attr], node.value
        while isinstance(inner, ast.Attribute):
            parts.append(inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name) and inner.id in self._known:
            self.uses.append(_joined(self._known[inner.id], ".".join(reversed(parts))))
        else:
            self.visit(inner)


def _below(module: str) -> str | None:
    """The path below tvm; None for another package."""
    root, _, rest = module.partition(".")
    return None if root not in _ROOTS else rest if root == "tvm" else _joined("topi", rest)


def _below_root(module: str) -> str:
    return "" if module.startswith("tvm") else "topi"


def _joined(module: str, name: str) -> str:
    return ".".join(part for part in (module, name) if part)


def _is_counted(path: str) -> bool:
    return not any(path == part or path.startswith(f"{part}.") for part in _MODERN)


def _resolved(path: str) -> bool:
    """Whether the name is there: of a path through a class or a value, that is what is looked up."""
    parts = path.split(".")
    for length in range(1, len(parts) + 1):
        if not exists(".".join(parts[:length])):
            return bool(refusal(path))
        if parts[length - 1][:1].isupper():  # a class: members of it are no names of the package
            return True
    return True


def main(folders: list[str]) -> int:
    """Print the counts."""
    warnings.simplefilter("ignore")
    imports, missing_imports, uses, missing, files = 0, Counter[str](), 0, Counter[str](), 0
    known: dict[str, bool] = {"": True}

    def found(path: str) -> bool:
        if path not in known:
            known[path] = _resolved(path)
        return known[path]

    for text in (text for folder in folders for text in sources(Path(folder))):
        try:
            names = _Names()
            names.visit(ast.parse(text))
        except (SyntaxError, ValueError):
            continue
        files += bool(names.imports)
        imports += len(names.imports)
        missing_imports.update(path for line in names.imports for path in line if not found(path))
        counted = [path for path in names.uses if _is_counted(path)]
        uses += len(counted)
        missing.update(path for path in counted if not found(path))
    lines_missing = sum(missing_imports.values())
    print(f"{files} files; import lines found: {imports - lines_missing} of {imports}")
    print(f"uses of names found: {uses - sum(missing.values())} of {uses}")
    for title, counts in (("imports", missing_imports), ("names", missing)):
        print(f"missing {title}: " + (", ".join(f"{name} {n}" for name, n in counts.most_common(60)) or "none"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
