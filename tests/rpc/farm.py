"""A package of hand-written kernels, and a tracker with servers as processes of their own on loopback. Fixtures of
them: conftest.py."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from armillary import artifact, rpc
from armillary.artifact import ArgRow, Descriptor, FunctionRow, GraphNode, GraphSpec, PhaseRow, VarRow
from armillary.artifact import package as artifact_package
from armillary.rpc.launch import Launched, Server

HERE = Path(__file__).parent
SIZE = 1000
WEIGHT = np.arange(SIZE, dtype=np.float32)
X = np.linspace(-1, 1, SIZE, dtype=np.float32)


def descriptor() -> Descriptor:
    """The rows of kernels.c."""
    row = (SIZE,)
    rows = (
        FunctionRow(
            "add",
            (ArgRow("a", row, "float32"), ArgRow("b", row, "float32"), ArgRow("c", row, "float32", "out")),
            (PhaseRow("add__p0", SIZE),),
        ),
        FunctionRow(
            "scale",
            (ArgRow("x", row, "float32", "out"),),
            (PhaseRow("scale__p0", SIZE),),
            (VarRow("f", "float64"),),
        ),
        FunctionRow("spin", (), (PhaseRow("spin__p0", 1),)),
        FunctionRow("crash", (), (PhaseRow("crash__p0", 1),)),
    )
    return Descriptor("c", {r.name: r for r in rows})


def graph() -> GraphSpec:
    """add(x, w)."""
    nodes = (GraphNode("null", "x"), GraphNode("null", "w"), GraphNode("tvm_op", "add", ((0, 0, 0), (1, 0, 0)), "add"))
    return GraphSpec(nodes, (0, 1), ((2, 0, 0),), ((SIZE,),) * 3, ("float32",) * 3, (0, 1, 2), (-1, -1, 0))


def compile_kernels(folder: Path, compiler: list[str]) -> Path:
    """kernels.c with its descriptor as a shared library."""
    text = descriptor().to_json().replace("\\", "\\\\").replace('"', '\\"')
    source = f'__attribute__((visibility("default"))) const char armillary_descriptor[] = "{text}";\n'
    (folder / "descriptor.c").write_text(source)
    output = folder / "lib.so"
    sources = [str(HERE / "kernels.c"), str(folder / "descriptor.c")]
    subprocess.run([*compiler, "-O1", "-shared", "-fPIC", "-o", str(output), *sources], check=True, timeout=120)
    return output


def make_package(folder: Path, compiler: list[str]) -> Path:
    """net.tar and lib.so in the folder; the path of the tar."""
    library = compile_kernels(folder, compiler).read_bytes()
    package = artifact_package.Package(library, graph().to_json(), artifact.save_params({"w": WEIGHT}))
    artifact_package.save_package(folder / "net.tar", package)
    return folder / "net.tar"


def native_server(command: list[str], *options: str) -> Launched:
    """A native server at any port; a kernel's crash is not the sanitizer's to report."""
    quiet = "handle_segv=0:detect_leaks=0:abort_on_error=1"
    return Launched("", "--port=0", *options, command=["env", f"ASAN_OPTIONS={quiet}", *command])


def check_sanitizers(server: Launched) -> None:
    """Fail if a sanitizer found something."""
    said = "\n".join(server.lines)
    assert "Sanitizer" not in said and "runtime error" not in said, said


class Farm:
    """A tracker and its servers."""

    def __init__(self) -> None:
        self.stack = contextlib.ExitStack()
        self.tracker = Launched("rpc_tracker", "--port=0", "--claim-timeout=1")
        self.stack.callback(lambda: self.tracker.terminate())
        self.port = self.tracker.port
        self.client = rpc.connect_tracker("127.0.0.1", self.port)

    def add(self, key: str, *options: str) -> Server:
        """A server of the key, once it is free."""
        before = self.free(key)
        server = Server(key=key, tracker_addr=("127.0.0.1", self.port), options=options)
        self.stack.callback(server.terminate)
        wait_until(lambda: self.free(key) > before)
        return server

    def free(self, key: str) -> int:
        """Free devices of the key."""
        return int(self.client.summary()["queue_info"].get(key, {"free": 0})["free"])


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Return when the condition holds; fail if it does not within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
