"""The main job in one screen: an ONNX network, compiled and run on this CPU.

Compiles SqueezeNet (shipped inside the onnx package) to a package file, loads the package as a device would, runs it,
checks the result against the output that onnx stores beside the model, and prints the slowest kernels.
Run it with `make demo`, or `python examples/demo.py [model.onnx]`.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from rich.console import Console
from rich.table import Table

import armillary
from armillary import relay
from armillary.contrib import debug_executor

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def main() -> None:
    console = Console()
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else LIGHT / "light_squeezenet.onnx"
    console.print(f"[bold]1. import[/] {path.name}")
    module, params = relay.frontend.from_onnx(path)

    console.print("[bold]2. compile[/] for this CPU (target: llvm)")
    start = time.perf_counter()
    with armillary.transform.PassContext(opt_level=3):
        library = relay.build(module, target="llvm", params=params)
    console.print(f"   {len(library.kernels)} kernels in {time.perf_counter() - start:.2f} s")

    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "network.tar"
        library.export_library(package)
        console.print(f"[bold]3. package[/] {package.name}: {package.stat().st_size / 1e6:.1f} MB")
        loaded = armillary.runtime.load_module(package)
        executor = debug_executor.GraphModuleDebug(loaded["default"](armillary.cpu(0)))

    shapes, dtypes = executor.get_input_info()
    inputs = {name: test_input(shapes[name], dtypes[name]) for name in shapes}
    executor.run(**inputs)
    console.print(f"[bold]4. run[/] output of shape {executor.get_output(0).shape}")
    check_stored_output(console, path, executor.get_output(0).numpy())
    console.print(str(executor.benchmark(armillary.cpu(0), repeat=20, number=1)))
    show_profile(console, executor)
    message = "next: .venv/bin/armc compile YOUR.onnx -o network.tar; docs/lessons/01_first_compile.md explains it"
    console.print(message, soft_wrap=True)


def test_input(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """The input onnx uses for its stored outputs: 0, 1, 2, … divided by the number of elements."""
    size = int(np.prod(shape))
    return (np.arange(size, dtype="float32") / size).astype(dtype).reshape(shape)


def check_stored_output(console: Console, path: Path, output: np.ndarray) -> None:
    stored = path.with_name(path.stem + "_output_0.pb")
    if not stored.exists():
        return
    tensor = onnx.TensorProto()
    tensor.ParseFromString(stored.read_bytes())
    np.testing.assert_allclose(output, numpy_helper.to_array(tensor), rtol=1e-3)
    console.print("   equal to the output stored with the model (rtol 1e-3)")


def show_profile(console: Console, executor: debug_executor.GraphModuleDebug) -> None:
    """The slowest kernels, by the fastest of five runs."""
    runs = [list(executor.profile()) for _ in range(5)]
    best = [(row.function, min(run[i].seconds for run in runs)) for i, row in enumerate(runs[0])]
    total = sum(seconds for _, seconds in best)
    table = Table("kernel", "ms", "share", title="5. where the time goes")
    for function, seconds in sorted(best, key=lambda row: -row[1])[:8]:
        table.add_row(function, f"{1e3 * seconds:.3f}", f"{100 * seconds / total:.1f} %")
    console.print(table)


if __name__ == "__main__":
    main()
