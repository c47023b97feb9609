"""Write docs/migration.md: which names of Relay-era scripts there are here, and which mean something else.

In: tools/old_names.txt (names that scripts of that time use, without the package's own), the package as it is, and the
notes below. Out: the page's text. Invariant: whether a name is there is found by looking it up; only notes are written
by hand, and a note about a name that has gone is an error.
"""

from __future__ import annotations

import importlib
from collections import defaultdict
from pathlib import Path

from armillary.errors import InternalError

_NAMES = Path(__file__).parent / "old_names.txt"
_HEAD = """
Scripts written for the last release with Relay run with the package's name replaced. The lists below are made by
looking every name up; the first table says where a name is there and means something else, because the old meaning was
a defect or because there is nothing behind it. Operators: [operators.md](operators.md). What a form cannot do:
[limits.md](limits.md).
"""
# A name, or several that share the note, and what is different.
NOTES: tuple[tuple[tuple[str, ...], str], ...] = (
    (("relay.transform.gradient",), "Both modes give the same function of operators; loops and recursion are refused."),
    (("relay.annotation.checkpoint", "relay.annotation.stop_fusion"), "Return their argument: nothing is recomputed."),
    (("relay.nn.dropout",), "The identity: nothing here trains."),
    (("relay.split",), "Returns a call of tuple type: `[0]`, `len`, unpacking and `.astuple()` work on it."),
    (("relay.Function",), "Type parameters are accepted where they are empty; functions are not polymorphic."),
    (
        ("relay.create_executor",),
        '`"vm"` compiles once for each set of input shapes.',
    ),
    (("relay.testing.run_infer_type",), "Infers and returns the same expression; a function with `ret_type`."),
    (
        ("ir.structural_equal", "ir.assert_structural_equal"),
        "A type that is written equals one that is inferred; what the weight's type says (`channels`, `units`, "
        "`kernel_size`) is not compared.",
    ),
    (
        ("relay.transform.FoldScaleAxis",),
        "The same value by other steps: scales fold into constant weights only.",
    ),
    (
        ("relay.transform.AlterOpLayout",),
        "By the rules that a script registers, and then by them alone; without any, the target's own blocked layouts.",
    ),
    (
        ("relay.dataflow_pattern.is_op",),
        "Rewriting begins at inputs; values that others read may be part of a match.",
    ),
    (("relay.nn.deformable_conv2d",), "As in Relay: 0 above and left of the image; ONNX's rule interpolates there."),
    (
        ("relay.random.threefry_key",),
        "The numbers are those of the published cipher, which ends with the key; Relay left that last step out.",
    ),
    (("topi.argsort",), "`valid_count` is refused."),
    (
        ("autotvm.graph_tuner.DPTuner",),
        "From the records that it gets, for CPUs: one for each workload, kernels and layouts weighed together.",
    ),
    (("topi.testing.conv2d_nchw_python",), "References are the operators' own, in the dtype of their inputs."),
    (("relay.op.register_gradient",), "The rule gets the call and the gradient of its result."),
    (("target.cuda", "target.rocm", "cuda", "rocm", "metal"), "Can be named; a build for them is refused."),
    (("tir.call_packed", "tir.tvm_access_ptr", "tir.address_of"), "Calls that print; refused by name when compiled."),
    (("contrib.graph_runtime",), "The same module as `contrib.graph_executor`."),
    (("te.create_prim_func",), "Scans become plain loops."),
    (("script.tir.prim_func",), "No `while`, no calls between functions of a module, no scalable vectors."),
    (("runtime.enabled",), "True for what this installation can run on."),
)


def page() -> str:
    """The page's text."""
    names = _NAMES.read_text("utf-8").split()
    there = [name for name in names if exists(name)]
    gone = sorted(set(names) - set(there))
    rows = [f"| {_quoted(_present(group))} | {told} |" for group, told in NOTES]
    count = f"Of {len(names)} names, {len(there)} are there and {len(gone)} are missing."
    notice = "<!-- Written by tools/write_docs.py; do not edit. -->"
    lines = [
        "# From scripts of the Relay era",
        "",
        notice,
        _HEAD,
        count,
        "",
        "## There, with another meaning",
        "",
        "| name | what is different |",
        "|---|---|",
        *rows,
        "",
        "## Missing",
        "",
        *_listed(gone),
        "",
        "## There",
        "",
        *_listed(there),
        "",
    ]
    return "\n".join(lines)


def _quoted(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _present(group: tuple[str, ...]) -> list[str]:
    return [name for name in group if exists(name)]


def _listed(names: list[str]) -> list[str]:
    """Names by the module they are in."""
    rooms: dict[str, list[str]] = defaultdict(list)
    for name in names:
        room, _, last = name.rpartition(".")
        rooms[room].append(last)
    return [f"- {f'`{room}`' if room else 'top level'}: {', '.join(rooms[room])}" for room in sorted(rooms)]


def exists(name: str) -> bool:
    """Whether `armillary.<name>` is an attribute or a module."""
    value, path = importlib.import_module("armillary"), "armillary"
    for part in name.split("."):
        path += f".{part}"
        try:
            value = getattr(value, part)
        except AttributeError:
            try:
                value = importlib.import_module(path)
            except ImportError:
                return False
    return True


def check_notes() -> None:
    """Every note is about a name that there is."""
    for group, told in NOTES:
        if not _present(group):
            raise InternalError(f"docs/migration.md: there is none of {', '.join(group)}: {told}")
