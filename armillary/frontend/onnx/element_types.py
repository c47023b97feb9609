"""Element types that the inputs of an operator may have by the ONNX standard.

In: a node's operator and the types of its inputs. Out: nothing, or a TypeMismatch that names the input. Invariant: the
file `element_types.txt` says what `onnx.defs` says of all versions of an operator together (tools/write_docs.py writes
it, a test compares): what any version takes is taken at every version, inputs that are of one type in every version are
of one type, and float16 and bfloat16 fit wherever a float does. Sequences, optionals, maps, and inputs that each have a
type of their own (Loop, Scan) are not looked at, nor are operators that the standard lacks. A line of the file names
the inputs with the letters of their types, the last for all that follow; then the letters. Shapes: shapes.py; who asks:
walk.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from armillary.base.lazy import deferred
from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.frontend.onnx.proto import ElementType, onnx
from armillary.frontend.onnx.signature import newest_opset
from armillary.frontend.onnx.tensor import DTYPES
from armillary.relay.types import TensorType

if TYPE_CHECKING:
    from onnx.defs import OpSchema

with deferred():
    from armillary.frontend.onnx.functions import history_of

_FILE = Path(__file__).with_name("element_types.txt")
_GROUPS = {
    "floats": ("float16", "bfloat16", "float32", "float64"),
    "ints": ("int8", "int16", "int32", "int64"),
    "uints": ("uint8", "uint16", "uint32", "uint64"),
    "float8s": ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
    "nibbles": ("int2", "uint2", "int4", "uint4"),
}
_NAMES = {f"tensor({ElementType(code).name.lower()})": name for code, name in DTYPES.items()}


@record(slots=True)
class Formal:
    """An input of an operator: its name, its type's letter ("_": not looked at), and the dtypes of that letter."""

    name: str
    letter: str
    dtypes: tuple[str, ...]


def check_types(op_type: str, domain: str, version: int, inputs: Sequence[object], name: str) -> None:
    """Refuse a node of the standard, one of whose inputs has an element type that it has not there.

    `inputs` are types, or None where an input is left out; `name` is the node's.
    """
    formals = formals_of(op_type, domain, version > newest_opset()) if inputs else ()
    first: dict[str, tuple[int, str]] = {}  # by letter: the input that has it first, and its dtype
    for index, ty in enumerate(inputs if formals else ()):
        formal = formals[min(index, len(formals) - 1)]
        if not isinstance(ty, TensorType) or formal.letter == "_":
            continue
        dtype = str(ty.dtype)
        before, same = first.setdefault(formal.letter, (index, dtype))
        if dtype in formal.dtypes and dtype == same:
            continue
        message = f"{op_type} node {name!r}: input {index} ({formal.name}) has dtype {dtype}, wanted "
        if dtype not in formal.dtypes:
            wanted = " or ".join(filter(None, [", ".join(formal.dtypes[:-1]), formal.dtypes[-1]]))
            raise TypeMismatch(message + wanted, hint="insert a Cast before it")
        other = formals[min(before, len(formals) - 1)].name
        raise TypeMismatch(f"{message}{same}, as input {before} ({other}) has", hint="insert a Cast before one of them")


@cache
def formals_of(op_type: str, domain: str, is_newer: bool = False) -> tuple[Formal, ...]:
    """The inputs of an operator of the standard, the last one for all that follow; `is_newer`: than the file."""
    head = f"{domain}.{op_type}".lstrip(".")
    text = _table().partition(f"\n{head} ")[2].partition("\n")[0]
    if not text or (domain == "" and is_newer and onnx.defs.onnx_opset_version() > newest_opset()):
        text = next(_lines(history_of(op_type, domain)), "").partition(" ")[2]
    items = text.split(" ")
    letters = dict(item.split("=") for item in items if "=" in item)
    dtypes = {letter: tuple(_expanded(kinds)) for letter, kinds in letters.items()}
    pairs = (item.split(":") for item in items if ":" in item)
    return tuple(Formal(name, letter, dtypes.get(letter, ())) for name, letter in pairs)


def _expanded(kinds: str) -> Iterator[str]:
    for kind in kinds.split(","):
        yield from _GROUPS.get(kind, (kind,))


@cache
def _table() -> str:
    return "\n" + _FILE.read_text("utf-8")


def types_text(schemas: Sequence[OpSchema]) -> str:
    """The text of the file: a line per operator that has inputs."""
    return "\n".join([*sorted(_lines(schemas)), ""])


def _lines(schemas: Sequence[OpSchema]) -> Iterator[str]:
    operators: dict[str, list[OpSchema]] = defaultdict(list)
    for schema in sorted(schemas, key=lambda s: s.since_version):
        operators[f"{schema.domain}.{schema.name}".lstrip(".")].append(schema)
    for head, versions in operators.items():
        letters = _letters(versions)
        named = [f"{_formal(versions, k).name}:{letter}" for k, letter in enumerate(letters)]
        kinds = {letter: _kinds(versions, letters, letter) for letter in letters if letter != "_"}
        if named:
            yield " ".join([head, *named, *(f"{letter}={kind}" for letter, kind in kinds.items())])


def _formal(versions: Sequence[OpSchema], index: int) -> OpSchema.FormalParameter:
    """An input as the newest version that has it describes it."""
    return next(schema.inputs[index] for schema in reversed(versions) if index < len(schema.inputs))


def _letters(versions: Sequence[OpSchema]) -> list[str]:
    """A letter for each input: that of an earlier one where every version that has both gives them one type."""
    letters: list[str] = []
    for index in range(max(len(schema.inputs) for schema in versions)):
        formal = _formal(versions, index)
        both = [s.inputs for s in versions if index < len(s.inputs)]
        tied = (k for k in range(index) if all(i[k].type_str == i[index].type_str for i in both))
        if not formal.is_homogeneous or not _dtypes(versions, [index]):
            letters.append("_")
        elif (first := next(tied, None)) is not None:
            letters.append(letters[first])
        else:
            own = formal.type_str if formal.type_str.isalnum() else "S"
            letters.append(own if own not in letters else f"{own}_{index}")
    return letters


def _dtypes(versions: Sequence[OpSchema], places: Sequence[int]) -> set[str]:
    """The dtypes that some version takes at some of these places."""
    kinds = {t for s in versions for k in places if k < len(s.inputs) for t in s.inputs[k].types}
    dtypes = {_NAMES.get(t, t[len("tensor(") : -1]) for t in kinds if t.startswith("tensor(")}
    return dtypes | ({"float16", "bfloat16"} if dtypes & set(_GROUPS["floats"]) else set())


def _kinds(versions: Sequence[OpSchema], letters: list[str], letter: str) -> str:
    """The dtypes of a letter as the file spells them: whole groups by their names."""
    dtypes = _dtypes(versions, [k for k, own in enumerate(letters) if own == letter])
    whole = [name for name, group in _GROUPS.items() if dtypes.issuperset(group)]
    rest = dtypes.difference(*(_GROUPS[name] for name in whole))
    return ",".join([*whole, *sorted(rest)])
