"""Lists of LLVM IR lines, with sharing and hoisting done while they are written.

In: right-hand sides as text, with the names they use. Out: names. Each nesting level (loop body, branch) is a region
with its own list of lines; a pure instruction goes to the outermost region where all its operands exist, and is
written once per region. So loop-invariant code is hoisted and common subexpressions are shared with no pass at all.
Invariant: a region's lines dominate whatever is written later in it or in regions inside it.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Region:
    """The lines of one nesting level and the pure instructions already in it."""

    level: int
    lines: list[str] = field(default_factory=list)
    known: dict[str, str] = field(default_factory=dict)


class Builder:
    """One function being written."""

    def __init__(self) -> None:
        self.regions = [Region(0)]
        self.levels: dict[str, int] = {}  # of names; constants and arguments are absent: level 0
        self.count = 0
        self.block = "entry"
        self.allocas: list[str] = []
        self.declared: dict[str, str] = {}

    @property
    def level(self) -> int:
        return len(self.regions) - 1

    def fresh(self, level: int | None = None) -> str:
        """A new name that belongs to `level` (default: the innermost)."""
        self.count += 1
        name = f"%v{self.count}"
        at = len(self.regions) - 1 if level is None else level
        if at:
            self.levels[name] = at
        return name

    def pure(self, text: str, *operands: str) -> str:
        """An instruction without effects that may run early: hoisted, and shared with an equal one."""
        levels, level = self.levels, 0
        for operand in operands:
            depth = levels.get(operand, 0)
            if depth > level:
                level = depth
        region = self.regions[level]
        name = region.known.get(text)
        if name is None:
            self.count += 1
            name = region.known[text] = f"%v{self.count}"
            region.lines.append(f"  {name} = {text}")
            if level:
                levels[name] = level
        return name

    def here(self, text: str) -> str:
        """An instruction that must run exactly here (a load, a division, a phi)."""
        name = self.fresh()
        self.regions[-1].lines.append(f"  {name} = {text}")
        return name

    def do(self, text: str) -> None:
        """An instruction without a result."""
        self.regions[-1].lines.append(f"  {text}")

    def label(self, hint: str) -> str:
        self.count += 1
        return f"{hint}{self.count}"

    def start(self, label: str) -> None:
        """Begin a block in the innermost region."""
        self.regions[-1].lines.append(f"{label}:")
        self.block = label

    def open(self, label: str) -> None:
        """Begin a region whose first block is `label` (the label itself is written by whoever closes the region)."""
        self.regions.append(Region(len(self.regions)))
        self.block = label

    def close(self) -> list[str]:
        """End the innermost region; its lines, for the caller to place."""
        return self.regions.pop().lines

    def declare(self, result: str, name: str, arguments: str, attributes: str = "") -> None:
        """Note an external function the module must declare."""
        self.declared.setdefault(name, f"declare {result} @{name}({arguments}) {attributes}".rstrip())

    def intrinsic(
        self, result: str, name: str, *arguments: tuple[str, str], hoist: bool = True, flags: str = ""
    ) -> str:
        """A call of an LLVM intrinsic or other pure function; arguments are (type, value), `flags` fast-math ones."""
        self.declare(result, name, ", ".join(kind for kind, _ in arguments))
        text = f"call{flags} {result} @{name}({', '.join(f'{kind} {value}' for kind, value in arguments)})"
        return self.pure(text, *(value for _, value in arguments)) if hoist else self.here(text)
