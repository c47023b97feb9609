"""Tables that operators' files fill: a file is imported when something of it is first looked up.

In: a key: an operator's name, or what a frontend names (`onnx:Conv`). Out: what its file registers. `operators.txt`
says which file that is (tools/write_docs.py writes it, a test compares). Invariant: the list only saves time: a key
that it lacks imports every file, as does any look at all keys, so what is there is found; one key belongs to one file.
A file is found by being in one of `ROOTS`; those whose name starts with an underscore are helpers.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, MutableMapping
from functools import cache
from pathlib import Path
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")
ROOTS = {  # folders of operators and import rules, and how the names of their files begin
    "ops": "",
    "frontend/onnx/rules": "",
    "frontend/mxnet/rules": "",
    "frontend/pytorch/rules": "",
    "frontend/tensorflow/rules": "",
    "frontend/tflite/rules": "",
    "backends": "operator",
}
_PACKAGE, _LIST = Path(__file__).parents[1], "operators.txt"


def module_names() -> list[str]:
    """Dotted names of all files that register operators or import rules, in the order of their names."""
    result = []
    for root, start in ROOTS.items():
        files = (path for path in (_PACKAGE / root).rglob(f"{start}*.py") if not path.name.startswith("_"))
        result += sorted(".".join(path.relative_to(_PACKAGE.parent).with_suffix("").parts) for path in files)
    return result


@cache
def load_operators() -> None:
    """Import every file that registers operators or import rules."""
    for name in module_names():
        importlib.import_module(name)


def is_lowered(key: str) -> bool:
    """Whether an operator is a back end's own, which builds make and no user writes."""
    return any(name.split(".")[1] == "backends" for name in listed_files(key))


@cache
def current_name(key: str) -> str:
    """The name of an operator for the one that texts of before, and of the Relay era, have.

    nn.contrib_conv2d_NCHWc_int8  ->  cpu.conv2d_NCHWc_int8
    vm.shape_of  ->  shape_of
    on_device  ->  annotation.on_device
    """
    moved = key.replace("nn.contrib_", "cpu.", 1)
    if moved != key and listed_files(moved):
        return moved
    others = () if listed_files(key) else (key.removeprefix("vm."), f"annotation.{key}")
    return next((name for name in others if name != key and listed_files(name)), key)


class LazyRegistry(MutableMapping[K, V]):
    """A table of what operators' files register; `spelled` writes a key as the list does, without blanks."""

    def __init__(self, spelled: Callable[[K], str]) -> None:
        self._spelled = spelled
        self._rows: dict[K, V] = {}
        self._ready: set[K] = set()  # keys whose files have been imported

    def is_taken(self, key: K) -> bool:
        """Whether something imported, or the file that the list names, has registered the key."""
        for name in listed_files(self._spelled(key)):
            importlib.import_module(name)  # not the file that is being imported and asks
        return key in self._rows

    def register(self, *keys: K) -> Callable[[V], V]:
        """Decorator: what follows stands under these keys."""

        def add(value: V) -> V:
            for key in keys:
                self[key] = value
            return value

        return add

    def registered(self, key: K) -> V | None:
        """What is registered so far; no file is imported."""
        return self._rows.get(key)

    def __getitem__(self, key: K) -> V:
        if key not in self._ready:
            if not self.is_taken(key):
                load_operators()
            self._ready.add(key)
        return self._rows[key]

    def __setitem__(self, key: K, value: V) -> None:
        self._rows[key] = value

    def __delitem__(self, key: K) -> None:
        del self._rows[key]

    def __iter__(self) -> Iterator[K]:
        load_operators()
        return iter(self._rows)

    def __len__(self) -> int:
        load_operators()
        return len(self._rows)


@cache
def _lines() -> tuple[str, ...]:
    """The list, if it is there; a file that has gone since it was written is left out."""
    place = Path(__file__).with_name(_LIST)
    lines = place.read_text("utf-8").splitlines() if place.exists() else ()
    return tuple(f"{line} " for line in lines if _is_file(line.partition(" ")[0]))


def _is_file(name: str) -> bool:
    return os.path.exists(f"{_PACKAGE}/{name.replace('.', '/')}.py")


def listed_files(spelled: str) -> list[str]:
    """Modules of the files that register a key, as the list says."""
    return [f"{_PACKAGE.name}.{line.partition(' ')[0]}" for line in _lines() if f" {spelled} " in line]


def listed_operators() -> Iterator[str]:
    """Names of Relay operators in the list."""
    return (word for line in _lines() for word in line.split()[1:] if ":" not in word)
