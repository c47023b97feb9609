"""The table of ONNX operators in docs/operators.md: every row has its reason, and no reason is left over."""

from __future__ import annotations

from armillary.frontend.onnx.table import REFUSED, contributed, rows, section
from armillary.frontend.onnx.walk import importable


def test_every_operator_has_a_state_and_what_is_refused_a_reason() -> None:
    table = list(rows())
    assert {row.state for row in table} == {"rule", "function", "refused"}
    assert [row for row in table if row.state == "refused" and not row.note] == []


def test_no_reason_is_left_over() -> None:
    assert [name for name in REFUSED if importable(*name, 28)] == []


def test_the_page_lists_control_flow_and_operators_outside_the_standard() -> None:
    text = "\n".join(section())
    assert "| `Loop` | rule |" in text and "| `NonMaxSuppression` | rule |" in text
    assert ("com.microsoft", "Attention") in contributed() and "| `com.microsoft.Attention` | rule |" in text
