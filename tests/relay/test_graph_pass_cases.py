"""Text cases of the graph passes (`tests/relay/cases`) and the examples in their module docstrings."""

from __future__ import annotations

import importlib
import textwrap
from functools import partial
from pathlib import Path

import pytest
from case_runner import Case, case_ids, check_case, load_cases

import armillary.relay.transform as transform
from armillary.backends.cpu.graph._bf16_products import notes_of
from armillary.base.node import structural_equal
from armillary.relay.offload_tables import register_support
from armillary.relay.parser import parse
from armillary.relay.pattern import is_op, wildcard
from armillary.target import Target
from armillary.transform import PASSES, Pass, PassContext, find_pass

CASES = load_cases(Path(__file__).parent / "cases", "relay")
AVX = "llvm -mcpu=skylake-avx512 -mtriple=x86_64-linux-gnu"
ADRENO = "opencl -device=adreno"
AMX = "llvm -mcpu=sapphirerapids -mtriple=x86_64-linux-gnu"
register_support("lib", "nn.relu", lambda call: True)
CONV_RELU = is_op("nn.relu")(is_op("nn.conv2d")(wildcard(), wildcard()))
OPTIONS = {
    "alter-op-layout": {"target": AVX},
    "annotate-target": {"targets": "lib"},
    "combine-parallel-batch-matmul": {"min_num_branches": 2},
    "combine-parallel-conv2d": {"min_num_branches": 2},
    "combine-parallel-dense": {"min_num_branches": 2, "to_batch": False},
    "convert-layout": {"desired_layouts": {"nn.conv2d": ["NHWC", "default"]}},
    "use-algorithms": {"target": AVX},
    "use-layouts": {"desired_layouts": {"nn.conv2d": ["NHWC", "default"]}},
    "annotate-memory-scope": {"target": ADRENO},
    "choose-kernels": {"target": AVX},
    "fourier-conv2d": {"target": AVX},
    "fuse-depthwise": {"target": AVX},
    "fuse-ops": {"fuse_opt_level": 3},
    "merge-groups": {"target": AVX},
    "merge-composite": {"pattern_table": [("lib.conv2d", CONV_RELU)]},
    "change-batch": {"data": {"x": 0}, "batch_size": 8},
    "flexible-shape-dispatch": {"buckets": [2, 4]},
    "inline-compiler-functions-bound-to": {"global_vars": ["f"]},
    "narrow-weights": {"target": AVX, "smallest": 4},
    "pack-low-bit": {"target": AVX},
    "pad-channels": {"target": AVX},
    "pad-units": {"target": AVX},
    "round-operands": {"target": AMX},
    "fuse-pool": {"target": AVX},
    "split-args": {"max_function_args": 3},
    "transpose-as-shuffle": {"target": AVX},
    "widen-small-floats": {"notes": partial(notes_of, target=Target(AMX))},
    "winograd-conv2d": {"target": AVX},
}
MODULES = [name for name in transform.module_names() if not name.endswith((".pipeline", ".over_devices"))]
SPECS = [name.rpartition(".")[2].replace("_", "-") for name in MODULES]


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
        doc = importlib.import_module(name).__doc__ or ""
        block = "\n".join(line for line in doc.splitlines() if line.startswith("    "))
        before, arrow, after = textwrap.dedent(block).partition("\n->\n")
        if arrow and before.startswith("def @main"):
            found.append((name.rpartition(".")[2].replace("_", "-"), before, after))
    return found


@pytest.mark.parametrize(("spec", "before", "after"), examples())
def test_docstring_example_is_what_the_pass_does(spec: str, before: str, after: str) -> None:
    with PassContext(opt_level=4):
        got, wanted = bound(spec)(parse(before)), parse(after)
    assert list(got) == list(wanted)
    for name in got:
        assert structural_equal(got[name], wanted[name]), got.astext()


@pytest.mark.parametrize("spec", SPECS)
def test_every_pass_has_an_executed_example_or_a_text_case(spec: str) -> None:
    """Passes that need weights of some size show what they do in a case file."""
    assert spec in {example[0] for example in examples()} | {case.subject for case in CASES}


def test_every_pass_file_registers_the_pass_of_its_name() -> None:
    assert set(SPECS) <= set(PASSES)
