"""What the ONNX standard says of the nodes of each operator: how many inputs, which attributes.

In: an operator's name, domain, and the version of its operator set. Out: a `Signature`. Invariant: the file
`operators.txt` says what `onnx.defs` says (tools/write_docs.py writes it, a test compares); operators and versions
newer than the file are looked up in the onnx package. Asking onnx.defs for the first schema takes 7 MB and 15 ms,
because it makes all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from armillary.base.lazy import deferred
from armillary.base.record import record

_FILE = Path(__file__).with_name("operators.txt")
with deferred():
    from armillary.frontend.onnx.functions import schema_of as _schema


@record(slots=True)
class Signature:
    """Numbers of inputs, and the attributes: name -> (name of the type, whether it must be given)."""

    min_input: int
    max_input: int
    attributes: dict[str, tuple[str, bool]]


def newest_opset() -> int:
    """The newest version of ONNX's own operator set that the file knows."""
    return int(_table().partition("\n")[0])


@cache
def signature_of(op_type: str, domain: str, version: int) -> Signature | None:
    """The signature that holds at a version of the operator set; None for an operator that the standard lacks."""
    head = f"{domain}.{op_type}".lstrip(".")
    rows = [rest.partition("\n")[0].split(" ") for rest in _table().split(f"\n{head} ")[1:]]
    if (domain == "" and version > newest_opset()) or not rows:
        schema = _schema(op_type, domain, version)
        return None if schema is None else _from_schema(schema)
    fitting = [row for row in rows if int(row[0]) <= version]
    if not fitting:
        return None
    _, least, most, *attributes = max(fitting, key=lambda row: int(row[0]))
    pairs = (item.split(":") for item in attributes)
    return Signature(int(least), int(most), {name: (kind.rstrip("!"), kind.endswith("!")) for name, kind in pairs})


@cache
def _table() -> str:
    return _FILE.read_text("utf-8")


def _from_schema(schema: Any) -> Signature:  # Any: onnx.defs.OpSchema
    attributes = {name: (a.type.name, bool(a.required)) for name, a in schema.attributes.items()}
    return Signature(schema.min_input, schema.max_input, attributes)


def table_text(schemas: object, newest: int) -> str:  # OpSchemas
    """The text of the file: the newest operator set, then a line per operator and version at which it changed."""
    return "\n".join([str(newest), *sorted(_lines(schemas)), ""])


def _lines(schemas: Any) -> Iterator[str]:
    for schema in schemas:
        lines = _from_schema(schema)
        name = f"{schema.domain}.{schema.name}".lstrip(".")
        attributes = [f"{key}:{kind}{'!' * must}" for key, (kind, must) in sorted(lines.attributes.items())]
        yield " ".join([name, str(schema.since_version), str(lines.min_input), str(lines.max_input), *attributes])
