"""Text cases of the graph passes (`tests/relay/cases`) and the examples in their module docstrings."""

from __future__ import annotations

import importlib
import textwrap
from pathlib import Path

import pytest
from case_runner import Case, case_ids, check_case, load_cases

import armillary.ops  # noqa: F401  (operators by name)
import armillary.relay.transform as transform
from armillary.node import structural_equal
from armillary.relay.parser import parse
from armillary.transform import Pass, PassContext, find_pass

CASES = load_cases(Path(__file__).parent / "cases", "relay")
AVX = "llvm -mcpu=skylake-avx512 -mtriple=x86_64-linux-gnu"
OPTIONS = {
    "alter-op-layout": {"target": AVX},
    "convert-layout": {"desired_layouts": {"nn.conv2d": ["NHWC", "default"]}},
    "fuse-ops": {"fuse_opt_level": 3},
}
MODULES = sorted(p.stem for p in Path(transform.__file__).parent.glob("[a-z]*.py"))


def bound(spec: str) -> Pass:
    return find_pass(spec).bind(**OPTIONS.get(spec, {}))


@pytest.mark.parametrize("case", CASES, ids=case_ids(CASES))
def test_case(case: Case, update_cases: bool) -> None:
    def run(text: str) -> str:
        with PassContext(opt_level=4):
            return bound(case.subject)(parse(text)).astext()

    check_case(case, run, update_cases)


def examples() -> list[tuple[str, str, str]]:
    """(pass, before, after) of each docstring with whole functions around an arrow."""
    found = []
    for name in MODULES:
        doc = importlib.import_module(f"{transform.__name__}.{name}").__doc__ or ""
        block = "\n".join(line for line in doc.splitlines() if line.startswith("    "))
        before, arrow, after = textwrap.dedent(block).partition("\n->\n")
        if arrow and before.startswith("def @main"):
            found.append((name.replace("_", "-"), before, after))
    return found


@pytest.mark.parametrize(("spec", "before", "after"), examples())
def test_docstring_example_is_what_the_pass_does(spec: str, before: str, after: str) -> None:
    got, wanted = bound(spec)(parse(before)), parse(after)
    assert structural_equal(got["main"], wanted["main"]), got.astext()


def test_most_passes_have_an_executed_example() -> None:
    assert len(examples()) >= 7
