"""Names: which ones a package can hold, and how the compiler makes its own beside those that people gave.

In: names that somebody gave (inputs of a network, functions, nodes of a model) and hints. Out: names, no two alike in
one namespace. The rule, for inputs, parameters, nodes, kernels, symbols, descriptor and texts: a name that was given
stays as it is, byte for byte; a name that the compiler makes gives way (`p0`, `p0_1`, `p0_2`, …). Invariant: nothing is
found under a name of which two things could be meant. NUL ends a text of C, and half a surrogate pair has no UTF-8
form: such names are refused where they are given, and replaced where they only tell something.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from armillary.base.digest import sha256
from armillary.errors import Span, TypeMismatch

_NOT_IN_IDENTIFIERS = re.compile(r"[^A-Za-z0-9_]")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_SYMBOL_LENGTH = 200  # characters of a name that its symbol repeats, where it cannot be the name itself


def check_name(name: str, what: str, span: Span | None = None) -> str:
    """The name as it is; TypeMismatch for one that no package can hold. `what` says whose name it is."""
    message = printable_name(name)
    if "\0" in name or message != name:
        why = "NUL" if "\0" in name else "half a surrogate pair, which has no UTF-8 form"
        raise TypeMismatch(f"the name of {what}, {message[:80]!r}, contains {why}", span=span, hint="rename it")
    return name


def printable_name(name: str) -> str:
    """A name that only tells something, such as a node's: what no package can hold is spelled out."""
    return name.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


def identifier(hint: str) -> str:
    """The hint with an underscore for each character that identifiers of C lack; many hints may give one."""
    text = _NOT_IN_IDENTIFIERS.sub("_", hint) or "v"
    return f"_{text}" if text[0].isdigit() else text


def symbol(name: str) -> str:
    """The C identifier that stands for a name: the name itself if it is one, else made from it, other for each name."""
    if _IDENTIFIER.match(name):
        return name
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{identifier(name)[:_SYMBOL_LENGTH]}_{digest}"


class Names:
    """One namespace: names that were given, and new ones beside them, one per object where it is asked `of` objects."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._by_object: dict[int, str] = {}
        self._keep: list[object] = []
        self._used: dict[str, int] = dict.fromkeys(names, 0)

    def fresh(self, hint: str) -> str:
        """The hint, or the hint with a number: a name that was neither given nor made before."""
        name = hint
        while name in self._used:
            self._used[hint] += 1
            name = f"{hint}_{self._used[hint]}"
        self._used[name] = 0
        return name

    def of(self, item: object, hint: str) -> str:
        """The name of `item`, made from `hint` the first time."""
        result = self._by_object.get(id(item))
        if result is None:
            result = self._by_object[id(item)] = self.fresh(hint)
            self._keep.append(item)
        return result


class Identifiers(Names):
    """A namespace of identifiers: of a text that is parsed again, or of C."""

    def fresh(self, hint: str) -> str:
        return super().fresh(identifier(hint))
