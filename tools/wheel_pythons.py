"""One wheel under several Pythons, without a compiler: compile, run, export, and load by the runtime alone.

In: the wheels that `tools/release.py` made, and commands of Pythons. Out: a line for each Python, exit status 1 if any
failed. Invariant: a Python sees what pip installed from its wheel and nothing else; its PATH is empty,
so neither compiler nor linker is found. The second process of each has the runtime's wheel and numpy alone.
Run: `python tools/wheel_pythons.py dist [PYTHON...]`: those, and one of each version from 3.10 that is found here.
AArch64 under qemu, on any Debian: `... dist --only $(.ci/python 3.11 bookworm /tmp/arm arm64)`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

MINORS = range(10, 15)
LIMIT = 600.0  # seconds for one program
COMPILE = """
import sys
from pathlib import Path
import numpy as np
import onnx
from onnx import helper, numpy_helper
import armillary
from armillary import relay
from armillary.contrib import graph_executor

folder, installed = Path(sys.argv[1]), sys.argv[2]
assert armillary.__file__.startswith(installed), armillary.__file__
random = np.random.default_rng(1)
weight = random.standard_normal((8, 3, 3, 3)).astype("float32")
nodes = [
    helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
    helper.make_node("Relu", ["c"], ["r"]),
    helper.make_node("GlobalAveragePool", ["r"], ["y"]),
]
value = helper.make_tensor_value_info
graph = helper.make_graph(
    nodes, "net", [value("x", 1, [1, 3, 9, 9])], [value("y", 1, None)], [numpy_helper.from_array(weight, "w")]
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
onnx.save(model, str(folder / "net.onnx"))
x = random.standard_normal((1, 3, 9, 9)).astype("float32")
padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
wanted = np.maximum(np.einsum("nchwij,ocij->nohw", windows, weight), 0).mean((2, 3), keepdims=True)
module, params = relay.frontend.from_onnx(model)
library = relay.build(module, target="llvm", params=params)
network = graph_executor.GraphModule(library["default"](armillary.cpu()))
network.set_input("x", x)
network.run()
np.testing.assert_allclose(network.get_output(0).numpy(), wanted, rtol=1e-5, atol=1e-6)
library.export_library(folder / "net.so")
np.save(folder / "x.npy", x)
np.save(folder / "wanted.npy", wanted)
"""
LOAD = """
import sys
from pathlib import Path
import numpy as np
import armillary
from armillary.contrib import graph_executor

folder, installed = Path(sys.argv[1]), sys.argv[2]
assert armillary.__file__.startswith(installed), armillary.__file__
for name in ("net.so", "net.tar"):
    session = armillary.InferenceSession(folder / name)
    (answer,) = session.run(None, {"x": np.load(folder / "x.npy")})
    np.testing.assert_allclose(answer, np.load(folder / "wanted.npy"), rtol=1e-5, atol=1e-6)
    library = armillary.runtime.load_module(str(folder / name))
    network = graph_executor.GraphModule(library["default"](armillary.cpu()))
    network.set_input("x", np.load(folder / "x.npy"))
    network.run()
    np.testing.assert_allclose(network.get_output(0).numpy(), np.load(folder / "wanted.npy"), rtol=1e-5, atol=1e-6)
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Check what the arguments name; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheels", type=Path, help="the folder with the wheels of the compiler and of the runtime")
    parser.add_argument("pythons", nargs="*", help="commands, besides those of the PATH and of pyenv")
    parser.add_argument("--only", action="store_true", help="no other Pythons than those that are named")
    options = parser.parse_intermixed_args(arguments)
    pythons = [*([] if options.only else found()), *options.pythons]
    failed = 0
    for python in pythons:
        problem = check(python, options.wheels)
        name = f"{version_of(python) or python} on {machine_of(python) or '?'}"
        print(f"{name}: {problem or 'compiled, ran, exported; loaded by the runtime alone'}", flush=True)
        failed += bool(problem)
    return 1 if failed or not pythons else 0


def found() -> list[str]:
    """One Python of each version from 3.10 to 3.14 that this machine has."""
    folders = [Path(p) for p in os.environ.get("PATH", "").split(os.pathsep)]
    folders += sorted(Path.home().glob(".pyenv/versions/*/bin"))
    commands = {
        minor: [str(f / f"python3.{minor}") for f in folders if (f / f"python3.{minor}").exists()] for minor in MINORS
    }
    first = (next((c for c in commands[minor] if version_of(c)), "") for minor in MINORS)
    return [command for command in first if command]


def version_of(python: str) -> str:
    """The version of a Python, such as 3.13; empty where it cannot be run."""
    return _asked(python, "'%d.%d' % sys.version_info[:2]")


def machine_of(python: str) -> str:
    """The processor of a Python, such as aarch64: the emulated one where it runs under an emulator."""
    return _asked(python, "__import__('platform').machine()")


def _asked(python: str, what: str) -> str:
    command = [python, "-I", "-c", f"import sys; print({what})"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def check(python: str, wheels: Path) -> str:
    """What does not work under a Python, or nothing."""
    version, machine = version_of(python), machine_of(python)
    if not version:
        return "cannot be run"
    command = _asked(python, "sys.executable")  # not what only a PATH leads to
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            (compiler,) = wheels.glob("armillary-*-any.whl")
            (runtime,) = wheels.glob(f"armillary_runtime-*_{machine}.whl")
            chosen = {compiler: (compiler, runtime), runtime: (runtime,)}
            installed = {
                w: _install(both, version, machine, folder / w.name.split("-")[0]) for w, both in chosen.items()
            }
            _run([command, "-c", COMPILE], folder, installed[compiler])
            cli = [
                command,
                "-m",
                "armillary.cli",
                "compile",
                str(folder / "net.onnx"),
                "--output",
                str(folder / "net.tar"),
            ]
            _run(cli, folder, installed[compiler])
            _run([command, "-c", LOAD], folder, installed[runtime])
        except ValueError:
            return f"{wheels} lacks the wheels for {machine}, or has several"
        except subprocess.CalledProcessError as error:
            return f"failed: {(error.stderr or error.stdout or '')[-1500:]}"
        except subprocess.TimeoutExpired as error:
            return f"took longer than {error.timeout:.0f} s: {' '.join(map(str, error.cmd))[:200]}"
    return ""


def _install(wheels: Sequence[Path], version: str, machine: str, folder: Path) -> Path:
    """Install wheels, with what they depend on, for a Python that need not have pip."""
    kinds = [f"--platform=manylinux_{glibc}_{machine}" for glibc in ("2_17", "2_27", "2_28", "2_34")]
    choice = ["--only-binary=:all:", f"--python-version={version}", "--implementation=cp", *kinds]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), *choice, *map(str, wheels)]
    subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=True)
    return folder


def _run(command: list[str], folder: Path, installed: Path) -> None:
    """Run a program that sees what is installed in a folder, without a PATH."""
    environment = {"PYTHONPATH": str(installed), "PATH": str(folder), "HOME": str(folder), "PYTHONNOUSERSITE": "1"}
    environment |= {k: v for k, v in os.environ.items() if k.startswith("LC_") or k == "LANG"}
    arguments = [] if "-m" in command else [str(folder), str(installed)]
    subprocess.run(
        [*command, *arguments], env=environment, cwd=folder, capture_output=True, text=True, timeout=LIMIT, check=True
    )


if __name__ == "__main__":
    sys.exit(main())
