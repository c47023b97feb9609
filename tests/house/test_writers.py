"""Files are made by two helpers: base/files.py in Python, arm_write.c in C.

In: the sources of the package. Out: nothing. Invariant: whatever else opens a file to write does so in a folder that it
made itself (a scratch folder), or appends to a file of the user; each such place has a row here with its reason.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from sources import PACKAGE, nodes

_WRITES = {
    "write_bytes",
    "write_text",
    "savez",
    "savez_compressed",
    "save",
    "tofile",
    "mkstemp",
    "mkdtemp",
    "NamedTemporaryFile",
    "TemporaryDirectory",
}
_MODULES = {"save", "savez"}  # other things are saved too: numpy's alone write by name
_FOLDER_OF_ITS_OWN = "in a scratch folder"
_ALLOWED = {
    "armillary/autotvm/measure/trial.py: savez": "in the folder of the trial, which the measuring process made",
    "armillary/autotvm/record.py: os.open O_CREAT": "records are appended to under a lock",
    "armillary/autotvm/tuner/tuner.py: NamedTemporaryFile": "made exclusively",
    "armillary/backend/bench/engines.py: savez": "in the folder of the race",
    "armillary/backend/bench/race.py: open w+": _FOLDER_OF_ITS_OWN,
    "armillary/backend/bench/race.py: savez": _FOLDER_OF_ITS_OWN,
    "armillary/artifact/library_sums.py: open r+b": "appends to a library that `replacing` holds",
    "armillary/cli/onnx_score.py: open a": "results are appended to the user's file",
    "armillary/cli/run.py: savez": "into a stream of `written_atomically`",
    "armillary/codegen/toolchain.py: write_bytes": _FOLDER_OF_ITS_OWN,
    "armillary/codegen/toolchain.py: write_text": _FOLDER_OF_ITS_OWN,
    "armillary/contrib/clang.py: write_text": _FOLDER_OF_ITS_OWN,
    "armillary/contrib/tar.py: open w:": "into a stream of `written_atomically`",
    "armillary/contrib/utils.py: TemporaryDirectory": "the folder itself",
    "armillary/contrib/utils.py: mkdtemp": "the folder itself",
    "armillary/driver/doctor.py: save": "into a stream of `written_atomically`",
    "armillary/driver/library.py: open wb": _FOLDER_OF_ITS_OWN,
    "armillary/driver/library.py: write_text": _FOLDER_OF_ITS_OWN,
    "armillary/driver/aot/__init__.py: open w": "a tar in memory",
    "armillary/driver/tvmc/model.py: open w": "a tar in memory",
    "armillary/exec/popen_worker.py: open wb": "a pipe to the process that asks",
    "armillary/rpc/secret.py: os.open O_CREAT": "with O_EXCL and O_NOFOLLOW",
    "armillary/runtime/module.py: write_bytes": _FOLDER_OF_ITS_OWN,
}
_ALLOWED_IN_C = {
    "arm_write.c": "the helper",
    "armrpc_files.c": "files that a client sends, below the session's folder, with O_NOFOLLOW",
    "arm_package.c": "mkstemp of the library to load",
}
_C_WRITE = re.compile(r'fopen\([^;]*"[wa]|O_CREAT|mkstemp|mkostemp|\bcreat\(|freopen|tmpnam|tempnam')


def _mode(call: ast.Call, at: int) -> str:
    given = [*call.args[at : at + 1], *(k.value for k in call.keywords if k.arg == "mode")]
    return next((str(g.value) for g in given if isinstance(g, ast.Constant)), "")


def _written(call: ast.Call) -> str:
    """How a call writes to a file; "" if it does not."""
    match call.func:
        case ast.Name("open"):
            mode = _mode(call, 1)
        case ast.Attribute(ast.Name("os"), "open"):
            return "os.open O_CREAT" if "O_CREAT" in ast.unparse(call) else ""
        case ast.Attribute(_, "open"):
            mode = _mode(call, 0)
        case ast.Attribute(owner, name) if name in _WRITES:
            is_other = name in _MODULES and not (isinstance(owner, ast.Name) and owner.id == "np")
            return "" if is_other else name
        case _:
            return ""
    return f"open {mode}" if set(mode) & set("wax+") and len(mode) < 4 else ""


def _writers() -> Iterator[str]:
    for file in sorted(PACKAGE.rglob("*.py")):
        place = file.relative_to(PACKAGE.parent).as_posix()
        if place != "armillary/base/files.py":
            found = (_written(node) for node in nodes(file) if isinstance(node, ast.Call))
            yield from (f"{place}: {how}" for how in found if how)


def test_files_are_written_by_one_helper() -> None:
    assert sorted(set(_writers())) == sorted(_ALLOWED), "use armillary.base.files.replacing or written_atomically"


def test_native_files_are_written_by_one_helper() -> None:
    sources = sorted((PACKAGE / "runtime" / "native").rglob("*.[ch]"))
    found = {file.name for file in sources if _C_WRITE.search(file.read_text("utf-8"))}
    assert found == set(_ALLOWED_IN_C), "use arm_write_open and arm_write_close"
