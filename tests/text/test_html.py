"""Notebook forms: program text is escaped, coloured and folded; tables line up."""

from __future__ import annotations

import html
import re

from armillary import relay, te
from armillary.ir import IRModule
from armillary.relay import expr
from armillary.text.html import coloured, source_html, table_html


def plain(page: str) -> str:
    """The text a reader sees."""
    return html.unescape(re.sub(r"<[^>]*>", "", page))


def test_colouring_changes_no_character_and_escapes_everything() -> None:
    text = 'def @main(%x: Tensor[(1, 3), float32], "<b>&") {\n  %0 = a < b; /* <i> */ # note\n}\n'
    page = coloured(text)
    assert plain(page) == text
    assert "<b>" not in page and "<i>" not in page
    assert page.count("<span") >= 6


def test_long_texts_come_folded_and_very_long_ones_cut() -> None:
    assert "<details open>" in source_html("a\n" * 10, "short")
    folded = source_html("a\n" * 5000, "long")
    assert "<details>" in folded and "1000 more lines" in folded and "5000 lines" in folded


def test_numbers_stand_right_in_tables() -> None:
    page = table_html(("name", "ms"), [["a<b", "1.25"], ["c", "3 %"]], [0.5])
    assert page.count("text-align:right") == 2
    assert "a&lt;b" in page and "width:60.0px" in page


def test_modules_functions_and_schedules_show_their_text() -> None:
    x = expr.var("x", shape=(2, 3))
    function = expr.Function((x,), relay.nn.relu(x) + expr.const([[1.0, 2.0, 3.0]]))
    module = IRModule.from_expr(function)
    assert plain(module._repr_html_()).startswith("IRModule of 1 function, 4 lines")
    assert module.astext(False).strip() in plain(module._repr_html_())
    assert "meta[relay.Constant][0]" in plain(function._repr_html_())
    assert "metadata" not in plain(function._repr_html_())
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] * 2.0, name="B")
    schedule = te.create_schedule(b.op)
    assert str(schedule) in plain(schedule._repr_html_())
    lowered = te.lower_schedule(schedule, [a, b], "double")
    assert "B[i] = A[i] * 2.0" in plain(lowered._repr_html_())
