"""Which ONNX operators can be imported, and why the others cannot: the second
table of docs/operators.md.

In: the schemas of the installed onnx package and our import rules. Out: one row per operator, and the page. Invariant:
an operator that is not imported has a reason here; tests check that the page is current and that no reason is left
over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx
from onnx.defs import OpSchema

from armillary.frontend.onnx.functions import schema_function
from armillary.frontend.onnx.node import ONNX_RULES
from armillary.frontend.onnx.walk import importable

DOMAINS = ("", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training")
_RANDOM = "random numbers: a compiled network gives the same outputs for the same inputs"
_STRINGS = "strings are not tensors here"
_MAPS = "strings and dictionaries are not tensors here"

REFUSED: dict[tuple[str, str], str] = {
    **{
        ("", name): _RANDOM
        for name in (
            "Bernoulli",
            "Multinomial",
            "RandomNormal",
            "RandomNormalLike",
            "RandomUniform",
            "RandomUniformLike",
        )
    },
    **{("", name): _STRINGS for name in ("RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit")},
    ("", "ImageDecoder"): "decoding files is not a part of a network",
    ("", "MaxRoiPool"): "superseded by RoiAlign",
    ("ai.onnx.preview.training", "Gradient"): "training is not supported",
}


@dataclass(frozen=True)
class Row:
    """One operator: `state` is rule, function or refused; `note` says since which opset, or why not."""

    domain: str
    name: str
    state: str
    note: str


def rows() -> Iterator[Row]:
    """Every operator of the standard that is not deprecated, by domain and name."""
    newest: dict[tuple[str, str], OpSchema] = {}
    for schema in onnx.defs.get_all_schemas():
        if schema.domain in DOMAINS and (not schema.deprecated or _is_imported_still(schema)):
            newest[schema.domain, schema.name] = schema
    for (domain, name), schema in sorted(newest.items()):
        yield _row(domain, name, schema)


def _is_imported_still(schema: OpSchema) -> bool:
    """Operators of ai.onnx.ml that its fifth version replaces, and exporters write."""
    return schema.domain == "ai.onnx.ml" and importable(schema.domain, schema.name, schema.since_version)


def _row(domain: str, name: str, schema: OpSchema) -> Row:
    version = onnx.defs.onnx_opset_version() if domain == "" else schema.since_version
    reason = REFUSED.get((domain, name), _MAPS if domain == "ai.onnx.ml" else "")
    if importable(domain, name, version):
        opsets = sorted(since for since, _ in ONNX_RULES.get((domain, name), ()))
        return Row(domain, name, "rule", f"opsets {', '.join(map(str, opsets))}" if opsets else "every opset")
    if reason:
        return Row(domain, name, "refused", reason)
    node = onnx.NodeProto(op_type=name, domain=domain)
    if schema_function(node, domain, version, None) is not None:
        return Row(domain, name, "function", "by the standard's function of other operators")
    return Row(domain, name, "refused", "")


def contributed() -> list[tuple[str, str]]:
    """Operators outside the standard that have a rule: (domain, name)."""
    return sorted(key for key in ONNX_RULES if key[0] not in DOMAINS)


def section() -> list[str]:
    """The lines of the table in docs/operators.md."""
    table = list(rows())
    count = {state: sum(row.state == state for row in table) for state in ("rule", "function", "refused")}
    return [
        "## ONNX operators",
        "",
        f"Of the {len(table)} operators of onnx {onnx.__version__} (opset {onnx.defs.onnx_opset_version()}), "
        f"{count['rule']} have an import rule,",
        f"{count['function']} are imported through the standard's function of other operators, and "
        f"{count['refused']} are refused with an",
        '`UnsupportedError` that names them all before anything is built. "opsets" are those where a rule starts; it',
        "holds until the next. Branches and loops run where what they depend on is not known when importing; sequences",
        "and optionals exist when importing only.",
        "",
        "| operator | state | |",
        "|---|---|---|",
        *(f"| `{f'{r.domain}.{r.name}' if r.domain else r.name}` | {r.state} | {r.note} |" for r in table),
        *(f"| `{domain}.{name}` | rule | not of the standard |" for domain, name in contributed()),
        "",
    ]
