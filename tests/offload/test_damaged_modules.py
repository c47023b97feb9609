"""Rows of offloaded functions that nobody should have written are refused when they are read or bound."""

from __future__ import annotations

import json

import pytest

from armillary.artifact import ArgRow, Descriptor, ExternalRow, FunctionRow, PhaseRow
from armillary.errors import ArmillaryError, ArtifactError
from armillary.runtime.module import Module

ARGS = (ArgRow("i0", (2,), "float32"), ArgRow("o0", (2,), "float32", "out"))


def loaded(external: ExternalRow, phases: tuple[PhaseRow, ...] = ()) -> Module:
    row = FunctionRow("f", ARGS, phases, external=external)
    return Module.from_symbols(Descriptor("llvm", {"f": row}), lambda symbol: 1)


@pytest.mark.parametrize("kind", ["../other", "a/b", "A", "", "x" * 64])
def test_a_kind_is_a_plain_name(kind: str) -> None:
    with pytest.raises(ArtifactError, match=r"external kind \".*\" is not of a-z, 0-9 and _"):
        loaded(ExternalRow(kind, "{}"))


def test_constants_are_among_the_inputs() -> None:
    with pytest.raises(ArtifactError, match="external constants is not a number of its inputs"):
        loaded(ExternalRow("lib", "{}", 2))


def test_an_offloaded_function_has_no_phases() -> None:
    with pytest.raises(ArtifactError, match="an external function has no phases"):
        loaded(ExternalRow("lib", "{}", 0), (PhaseRow("f__p0", 1),))


def test_a_row_reads_back_equal_and_a_damaged_one_does_not() -> None:
    row = FunctionRow("f", ARGS, (), external=ExternalRow("lib", '{"nodes": ["\\u00e4"]}', 1))
    text = Descriptor("llvm", {"f": row}).to_json()
    assert Descriptor.from_json(text).functions["f"] == row
    for key, value in (("kind", 5), ("source", None), ("constants", -1)):
        damaged = json.loads(text)
        damaged["functions"]["f"]["external"][key] = value
        with pytest.raises(ArmillaryError):
            Descriptor.from_json(json.dumps(damaged))
