"""`--sizes`: the values that a user states for open sizes of a network.

In: texts such as "seq=8,128 batch=1". Out: values by name, one dictionary for each combination. Invariant: what cannot
be read is a ConfigError that quotes the text; whether a network has the sizes is said where it is known
(`base/extent.py`, `size_values`).
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Mapping

from armillary.cli._console import note
from armillary.errors import ConfigError

_MANY = "open sizes, {what} for each combination: 'seq=8,128,512 batch=1,4' (default: what kernels were chosen for)"
_ONE = "values for open sizes of inputs that are random: seq=128,batch=2 (default: what kernels were chosen for)"


def add_sizes_argument(parser: argparse.ArgumentParser, each: str = "") -> None:
    """Declare `--sizes`; `each`: what is done once for each combination, where there may be several."""
    message = _MANY.format(what=each) if each else _ONE
    parser.add_argument("--sizes", default="", metavar="NAME=N,…", help=message)


def all_sizes(text: str) -> list[dict[str, int]]:
    """Each combination of "seq=8,128,512 batch=1,4"; a comma may stand between names, too."""
    lists: dict[str, list[int]] = {}
    for item in text.replace(",", " ").split():
        name, equals, value = item.rpartition("=")
        if not (name if equals else lists) or not (value.isascii() and value.isdecimal()):
            raise ConfigError(f"--sizes: cannot read {text!r}", hint="write seq=8,128,512 batch=1,4")
        lists.setdefault(name if equals else next(reversed(lists)), []).append(int(value))
    return [dict(zip(lists, row, strict=True)) for row in itertools.product(*lists.values())]


def one_size_each(text: str) -> dict[str, int]:
    """Values of sizes, from "seq=128,batch=2"."""
    rows = all_sizes(text)
    if len(rows) > 1:
        raise ConfigError(f"--sizes: {text!r} states several values of a size", hint="write seq=128,batch=2")
    return rows[0]


def sizes_text(sizes: Mapping[str, int]) -> str:
    """Sizes as tables and summaries say them: "seq = 8, batch = 1"."""
    return ", ".join(f"{name} = {value}" for name, value in sizes.items())


def note_assumed(values: Mapping[str, int], stated: Mapping[str, int]) -> None:
    """Say which sizes nobody stated, and what they are taken to be."""
    assumed = [f"{name}={value}" for name, value in values.items() if name not in stated]
    if assumed:
        note(f"sizes are taken to be {', '.join(assumed)}: --sizes chooses others")
