"""Targets by one word: boards, the CPU at hand, and what somebody who writes a processor's name may mean.

In: the first word of a target string. Out: a target string, or a hint for an error. Invariant: a word that is a kind of
target is never looked at here. The boards: boards.py; kinds: the package `kinds`.
"""

from __future__ import annotations

import re

from armillary.base.lazy import similar
from armillary.target.boards import BOARDS
from armillary.target.cpu_table import TABLES

_TRIPLES = {
    "aarch64": "aarch64-linux-gnu",
    "x86_64": "x86_64-linux-gnu",
    "arm": "armv7a-linux-gnueabihf",
    "riscv64": "riscv64-linux-gnu",
}
_SPELLINGS = {
    **dict.fromkeys(("arm64", "aarch64", "armv8", "armv8a", "arm64v8a"), "aarch64"),
    **dict.fromkeys(("amd64", "x86", "x8664", "x64", "intel"), "x86_64"),
    **dict.fromkeys(("arm", "arm32", "armv7", "armv7a", "armv7l", "armhf"), "arm"),
    **dict.fromkeys(("riscv", "riscv64", "rv64"), "riscv64"),
}


def by_word(word: str) -> str | None:
    """The target string that a word stands for: a board's name, or `native`."""
    if word == "native":
        return "llvm -mcpu=native"
    board = BOARDS.get(word)
    return None if board is None else f"llvm -keys=arm_cpu,cpu -device=arm_cpu {board}"


def meant_by(word: str) -> str:
    """What somebody who takes the word for a target may mean; "" if nothing is near."""
    plain = re.sub(r"[-_. ]", "", word.lower())
    architecture = _SPELLINGS.get(plain)
    if architecture is not None:
        return f'"llvm -mtriple={_TRIPLES[architecture]}"'
    for name in ("aarch64", "x86_64"):
        cpus = {re.sub(r"[-_.]", "", cpu): cpu for cpu in TABLES[name]}
        if plain in cpus and plain != "generic":
            return f'"llvm -mtriple={_TRIPLES[name]} -mcpu={cpus[plain]}"'
    close = similar(word, BOARDS, 1, 0.7)
    return close[0] if close else ""
