"""Write docs/migration.md: which names of Relay-era scripts there are here, and which mean something else.

In: tools/old_names.txt (names that public code of that time uses, without the package's own, and by how many files),
the package as it is, and the notes below. Out: the page's text. Invariant: whether a name is there is found by looking
it up, whether it refuses by the tables that say so; only notes are written by hand, and a note about a name that has
gone is an error.
"""

from __future__ import annotations

import importlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from armillary.base import old_modules
from armillary.errors import InternalError

_NAMES = Path(__file__).parent / "old_names.txt"
_HEAD = """
Scripts written for the releases with Relay run with the package's name replaced. The names are those that two or more
public tutorials, applications and tests of 0.6 to 0.19 use, without those of Relax, MetaSchedule, `tvm.testing`, and
boards; each is looked up here. The second table says where a name is there and means something else, because the old
meaning was a defect or because there is nothing behind it. Of the tests of release 0.19 that are about public names
and run on a CPU, 3404 of 3898 pass, 87.3 % (files that changed were counted again; twelve
cases of a function at most, sixty seconds each, on a machine that others used too; files that are downloaded
and the ONNX importer's own tests are not among them).
Of 180 files of twelve public repositories of users (courses, a book, benchmarks, deployments) 531 of 538 import
lines and 4,487 of 4,499 uses of names are found (`python -m tools.script_census FOLDER`).
Operators: [operators.md](operators.md). What a form cannot do: [limits.md](limits.md).
"""
# A name, or several that share the note, and what is different.
NOTES: tuple[tuple[tuple[str, ...], str], ...] = (
    (("relay.transform.gradient",), "Both modes give the same function of operators; loops and recursion are refused."),
    (("relay.annotation.checkpoint",), "Returns its argument: nothing is recomputed."),
    (("relay.nn.dropout",), "The identity: nothing here trains."),
    (("relay.split",), "Returns a call of tuple type: `[0]`, `len`, unpacking and `.astuple()` work on it."),
    (("relay.Function",), "Type parameters are accepted where they are empty; functions are not polymorphic."),
    (
        ("relay.create_executor",),
        '`"vm"` compiles once for all sizes that are unknown; where an operator has no form over sizes, for each set '
        "of input shapes.",
    ),
    (("relay.testing.run_infer_type",), "Infers and returns the same expression; a function with `ret_type`."),
    (
        ("ir.structural_equal", "ir.assert_structural_equal"),
        "A type that is written equals one that is inferred; what the weight's type says (`channels`, `units`, "
        "`kernel_size`) is not compared.",
    ),
    (
        ("relay.transform.AlterOpLayout",),
        "By the rules that a script registers, and then by them alone; without any, the target's own blocked layouts.",
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
    uses = names()
    refused = {name: why for name in uses if (why := refusal(name))}
    there = [name for name in uses if name not in refused and exists(name)]
    gone = [name for name in uses if name not in refused and name not in set(there)]
    rows = [f"| {_quoted(_present(group))} | {text} |" for group, text in NOTES]
    notice = "<!-- Written by tools/write_docs.py; do not edit. -->"
    lines = [
        "# From scripts of the Relay era",
        "",
        notice,
        _HEAD,
        "| | names | uses, by files |",
        "|---|---|---|",
        *(_share(what, part, uses) for what, part in (("there", there), ("left out", [*refused]), ("missing", gone))),
        "",
        "## There, with another meaning",
        "",
        "| name | what is different |",
        "|---|---|",
        *rows,
        "",
        "## Left out",
        "",
        "These can be imported, and refuse when they are called; those that ask whether something is there answer no.",
        "",
        "| name | what is used instead |",
        "|---|---|",
        *(f"| {_quoted(group)} | {why} |" for why, group in _by_reason(refused).items()),
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


def names() -> dict[str, int]:
    """Every name, and how many public files use it."""
    pairs = (line.split() for line in _NAMES.read_text("utf-8").splitlines())
    return {name: int(uses) for name, uses in pairs}


def _share(what: str, part: Sequence[str], uses: Mapping[str, int]) -> str:
    count, whole = sum(uses[name] for name in part), sum(uses.values())
    return f"| {what} | {len(part)} of {len(uses)} | {count} of {whole}, {100 * count / whole:.1f} % |"


def refusal(name: str) -> str:
    """What is used instead of a name that refuses; "" for any other."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        sign, rest = old_modules.table().get(".".join(parts[:length]), ("", ""))
        if sign == "!":
            return rest
    value = _value(name)
    if getattr(value, "__module__", "") == "armillary.frontend.refused":
        return "export the network to ONNX, then `relay.frontend.from_onnx`"
    return ""


def _by_reason(refused: Mapping[str, str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = defaultdict(list)
    for name, why in refused.items():
        groups[why].append(name)
    return groups


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _present(group: tuple[str, ...]) -> list[str]:
    return [name for name in group if exists(name)]


def _listed(names: Sequence[str]) -> list[str]:
    """Names by the module they are in."""
    rooms: dict[str, list[str]] = defaultdict(list)
    for name in names:
        room, _, last = name.rpartition(".")
        rooms[room].append(last)
    return [f"- {f'`{room}`' if room else 'top level'}: {', '.join(rooms[room])}" for room in sorted(rooms)]


def exists(name: str) -> bool:
    """Whether `armillary.<name>` is an attribute or a module."""
    return _value(name) is not None


def _value(name: str) -> object:
    """What a name stands for; None where it is not there."""
    value, path = importlib.import_module("armillary"), "armillary"
    for part in name.split("."):
        path += f".{part}"
        try:
            value = getattr(value, part)
        except AttributeError:
            try:
                value = importlib.import_module(path)
            except ImportError:
                return None
    return value


def check_notes() -> None:
    """Every note is about a name that there is."""
    for group, text in NOTES:
        if not _present(group):
            raise InternalError(f"docs/migration.md: there is none of {', '.join(group)}: {text}")
