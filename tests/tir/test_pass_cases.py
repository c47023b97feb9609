"""Text cases of the loop passes (`tests/tir/cases`): the first line of a file names the pass."""

from __future__ import annotations

from pathlib import Path

import pytest
from case_runner import Case, case_ids, check_case, load_cases

from armillary.tir import lower  # noqa: F401  (registers the passes)
from armillary.tir.parser import parse_module
from armillary.tir.transform.split_phases import split_phases
from armillary.tir.verifier import verify
from armillary.transform import find_pass

CASES = load_cases(Path(__file__).parent / "cases", "tir")


@pytest.mark.parametrize("case", CASES, ids=case_ids(CASES))
def test_case(case: Case, update_cases: bool) -> None:
    check_case(
        case, phases_text if case.subject == "split-phases" else lambda text: run(case.subject, text), update_cases
    )


def run(spec: str, text: str) -> str:
    """The module after the pass, as text."""
    options = {"constant": True} if spec == "loop-partition" else {}  # as the kernels of a graph have it
    result = find_pass(spec).bind(**options)(parse_module(text))
    for _, function in result.items():
        verify(function)
    return result.astext()


def phases_text(text: str) -> str:
    """What split-phases makes of the only function."""
    (func,) = (f for _, f in parse_module(text).items())
    made = split_phases(func)
    lines = [f"shared {made.shared_bytes} thread {made.thread_bytes} asserts {list(made.asserts)}"]
    lines += [
        f"{kind} {b.name} at {offset}"
        for kind, table in (("shared", made.shared_workspace), ("thread", made.thread_workspace))
        for b, offset in table.items()
    ]
    for phase in made.phases:
        kind = "parallel" if phase.is_parallel else "serial"
        lines += [f"phase {phase.var.name} in [{phase.min!r}, +{phase.extent!r}) {kind}", str(phase.body).rstrip()]
    return "\n".join(lines)
