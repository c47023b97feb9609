"""Functions of a network joined to one OpenCL program, in which kernels that differ in sizes alone are one.

In: rows and texts of `source.emit_source` (blocks with an empty line between, a kernel for each launch). Out: rows, and
one text: a helper that many kernels use is there once, before all that use it. Numbers in which kernels differ become
arguments, where the time does not depend on them being constants: no divisors, no sizes of arrays, no indices of
registers or shared memory, no bounds of loops that a driver unrolls. Invariant: with its launch's numbers put in, a
shared kernel is the text that it replaces. A driver takes 0.1 s for a product kernel; DenseNet-121 has 164 kernels.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from armillary.base.digest import blake2b

if TYPE_CHECKING:
    from armillary.artifact import FunctionRow

_HEAD = re.compile(r"__kernel .*? void (\w+)\((.*)\) \{$", re.MULTILINE)
_ARRAY = re.compile(r"^ *(?:__local )?\w+ (\w+)\[\d+\](?: __attribute__.*)?;$", re.MULTILINE)
_TOKEN = re.compile(r"(?:(?<=[-+*<>=:] )|(?<=\(uint\)))\d+(?![\w.])|\[|\]|\w+(?=\[)")
_LOOP = re.compile(r"^ *for \(\w+ (\w+) = .*; \1 < (\d+); \+\+\1\) \{$")
_OWN_HASH = re.compile(r"_[0-9a-f]{8}(?=_kernel\d+$)")
_FIXED = re.compile(r"^ *(?:#pragma|__local|for )")
_HOLE = "\0"
MOST_NUMBERS = 12  # that a shared kernel takes: each is a word that every work-item reads
LONG_LOOP = 64  # turns from which on no driver writes a loop out


def program(sources: Iterable[str]) -> str:
    """The blocks of all sources, repeated ones once."""
    return _joined(block for source in sources for block in _blocks(source))


def shared_program(functions: Mapping[str, tuple[FunctionRow, str]]) -> tuple[dict[str, FunctionRow], str]:
    """Rows that launch shared kernels, and the program of these."""
    kernels = {}
    for _, source in functions.values():
        for block in _blocks(source):
            head = _HEAD.match(block)
            if head is not None:
                kernels[head[1]] = _Kernel(block, head[1])
    alike: dict[str, list[_Kernel]] = {}
    for kernel in kernels.values():
        alike.setdefault(kernel.form, []).append(kernel)
    for group in alike.values():
        _share(group)
    rows = {name: _launching(row, kernels) for name, (row, _) in functions.items()}
    blocks = (block for _, source in functions.values() for block in _blocks(source))
    return rows, _joined(_replaced(block, kernels) for block in blocks)


class _Kernel:
    """A kernel's text, the same with holes for numbers that may be arguments, and what it becomes."""

    def __init__(self, text: str, name: str) -> None:
        self.name, self.text = name, text
        self.parts, self.numbers = _taken_apart(text.replace(name, _HOLE * 2, 1))
        self.form = _HOLE.join(self.parts)
        self.symbol, self.arguments = name, tuple[int, ...]()


def _blocks(source: str) -> list[str]:
    return source.strip("\n").split("\n\n")


def _joined(blocks: Iterable[str]) -> str:
    return "\n\n".join(dict.fromkeys(blocks)) + "\n"


def _replaced(block: str, kernels: Mapping[str, _Kernel]) -> str:
    head = _HEAD.match(block)
    return block if head is None else kernels[head[1]].text


def _taken_apart(text: str) -> tuple[list[str], list[int]]:
    """The text between numbers that may be arguments, and these."""
    arrays = frozenset(_ARRAY.findall(text))
    begin, parts, numbers = 0, list[str](), list[int]()
    for start, end in _numbers(text, arrays):
        parts.append(text[begin:start])
        numbers.append(int(text[start:end]))
        begin = end
    return [*parts, text[begin:]], numbers


def _numbers(text: str, arrays: frozenset[str]) -> Iterator[tuple[int, int]]:
    """Where numbers stand that may be arguments."""
    at = 0
    for line in text.split("\n"):
        loop = _LOOP.match(line)
        if loop is not None and (loop[1].startswith("turn") or int(loop[2]) >= LONG_LOOP):
            yield at + loop.start(2), at + loop.end(2)
        elif not _FIXED.match(line):
            yield from ((at + start, at + end) for start, end in _operands(line, arrays))
        at += len(line) + 1


def _operands(line: str, arrays: frozenset[str]) -> Iterator[tuple[int, int]]:
    """Numbers that are added, multiplied or compared, but to place an element of the kernel's own arrays."""
    within: list[bool] = []
    name = ""
    for token in _TOKEN.finditer(line):
        match token[0]:
            case "[":
                within.append(name in arrays)
            case "]":
                within.pop()
            case word if word[0].isdigit():
                if not any(within) and int(word) < 1 << 31:
                    yield token.span()
            case word:
                name = word


def _share(group: list[_Kernel]) -> None:
    """Make kernels of one form one kernel, if they differ in few numbers."""
    if len(group) == 1:
        return
    columns = list(zip(*(kernel.numbers for kernel in group), strict=True))
    several = dict.fromkeys(column for column in columns if len(set(column)) > 1)
    if len(several) > MOST_NUMBERS:
        return
    prefix = "size"
    while re.search(rf"\b{prefix}_\d", group[0].text):
        prefix += "_of"
    names = {column: f"{prefix}_{n}" for n, column in enumerate(several)}
    first = group[0]
    written = [names.get(column, str(column[0])) for column in columns]
    text = "".join(part + number for part, number in zip(first.parts, [*written, ""], strict=True))
    if names:
        head, _, body = text.partition(") {\n")
        head += "".join(f", long {name}_word" for name in names.values())
        lines = [f"  const int {name} = (int){name}_word;\n" for name in names.values()]
        text = f"{head}) {{\n{''.join(lines)}{body}"
    digest = blake2b(text.encode(), digest_size=4).hexdigest()
    symbol = _OWN_HASH.sub(f"_{digest}", first.name) if _OWN_HASH.search(first.name) else f"{first.name}_{digest}"
    for n, kernel in enumerate(group):
        kernel.text, kernel.symbol = text.replace(_HOLE * 2, symbol, 1), symbol
        kernel.arguments = tuple(column[n] for column in several)


def _launching(row: FunctionRow, kernels: Mapping[str, _Kernel]) -> FunctionRow:
    """The row, with launches of shared kernels."""
    launches = []
    for launch in row.launches:
        kernel = kernels[launch.kernel]
        args = (*launch.args, *(("number", number) for number in kernel.arguments))
        launches.append(replace(launch, kernel=kernel.symbol, args=args))
    return replace(row, launches=tuple(launches))
