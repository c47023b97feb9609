"""The networks of torch_zoo.py, small, through PyTorch's doors, against eager.

In: names of networks (none: all); `--doors export,open,script,compile`. Out: one line for each network and door: the
largest difference, relative to the largest value of its tensor, and the seconds that import and build took, or why it
stops; appended to `--log` as JSON, whose rows are not run again; `--table` prints what the log has. Invariant: the
weights are seeded; `open` exports with an open batch, builds once, and runs at two batches, as `compile` does.

    python benchmarks/torch_doors.py resnet18 bert --doors export,open --log doors.jsonl
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

DOORS = ("export", "open", "script", "compile")
BATCHES = (2, 3)
WRONG = 1e-4


def difference(result: Sequence[Any], wanted: Sequence[Any]) -> float:
    """The largest difference, relative to the largest value of its tensor; infinite where shapes differ."""
    import numpy as np

    worst = 0.0 if len(result) == len(wanted) else float("inf")
    for ours, tensor in zip(result, wanted, strict=False):
        a, b = np.asarray(ours).astype("float64"), tensor.detach().numpy().astype("float64")
        if a.shape != b.shape:
            return float("inf")
        if b.size:
            same = np.array_equal(np.isfinite(a), np.isfinite(b))
            gap = np.abs(np.nan_to_num(a) - np.nan_to_num(b)).max() if same else float("inf")
            worst = max(worst, float(gap / max(1e-6, np.abs(np.nan_to_num(b)).max())))
    return worst


def seeded(model: Any, tensors: Sequence[Any]) -> Any:
    """What a model gives; one that draws numbers draws the same ones each time."""
    import torch

    torch.manual_seed(0)
    return model(*tensors)


def compared(module: Any, params: dict[str, Any], model: Any, inputs: Sequence[Any]) -> float:
    """Build once, run for all inputs."""
    import armillary
    from armillary import relay

    with armillary.transform.PassContext(opt_level=3):
        graph = relay.build(module, target="llvm", params=params)["default"]()
    errors = []
    for tensors in inputs:
        for number, x in enumerate(tensors):
            graph.set_input(number, x.numpy())
        graph.run()
        errors.append(
            difference([graph.get_output(k).numpy() for k in range(graph.get_num_outputs())], model(*tensors))
        )
    return max(errors)


def through(door: str, model: Any, inputs: Sequence[Any], report: Callable[[str], object]) -> float:
    """The largest difference by one door."""
    import torch

    import armillary.contrib.torch_backend
    from armillary import relay

    if door == "compile":
        armillary.contrib.torch_backend.register()  # also from a checkout that is not installed
        torch._dynamo.reset()
        compiled = torch.compile(model, backend="armillary", options={"report": report})
        return max(difference(seeded(compiled, tensors), seeded(model, tensors)) for tensors in inputs)
    if door == "script":
        script = torch.jit.trace(model, inputs[0], check_trace=False)
        infos = [(f"x{k}", (tuple(x.shape), str(x.dtype).removeprefix("torch."))) for k, x in enumerate(inputs[0])]
        module, params = relay.frontend.from_pytorch(script, infos)
        return compared(module, params, model, inputs[:1])
    dims = (tuple({0: torch.export.Dim.DYNAMIC} for _ in inputs[0]),) if door == "open" else None
    program = torch.export.export(model, inputs[0], dynamic_shapes=dims)
    module, params = relay.frontend.from_exported_program(program)
    return compared(module, params, model, inputs if door == "open" else inputs[:1])


def measured(name: str, door: str) -> dict[str, Any]:
    """One network through one door."""
    warnings.simplefilter("ignore")
    import torch
    from torch_zoo import network

    reports: list[str] = []
    row: dict[str, Any] = {"name": name, "door": door, "torch": torch.__version__}
    start = time.process_time()
    try:
        model, example = network(name)
        inputs = [example(batch) for batch in BATCHES]
        with torch.inference_mode(door == "compile"), torch.no_grad():
            row["difference"] = through(door, model, inputs, reports.append)
    except Exception as error:  # of any of the parties, which is the result
        row["error"] = f"{type(error).__name__}: {error}"[:1500]
    return row | {"seconds": round(time.process_time() - start, 1), "reports": reports}


def shown(row: dict[str, Any]) -> str:
    """A row as a line."""
    if "error" in row:
        return f"{row['name']:20} {row['door']:8} {' '.join(row['error'].split())[:160]}"
    mark = "" if row["difference"] < WRONG else "  WRONG"
    parted = [r for r in row["reports"] if "compiled as one" not in r or "anew" in r]
    return f"{row['name']:20} {row['door']:8} {row['difference']:.0e} {row['seconds']:6.1f} s{mark} {parted or ''}"


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Networks by doors: the difference, or that it stops."""
    by = {(row["name"], row["door"]): row for row in rows}
    lines = [f"| network | {' | '.join(DOORS)} |", "|---" * (1 + len(DOORS)) + "|"]
    for name in dict.fromkeys(row["name"] for row in rows):
        cells = [by.get((name, door)) for door in DOORS]
        texts = ["" if c is None else "stops" if "error" in c else f"{c['difference']:.0e}" for c in cells]
        lines.append(f"| {name} | {' | '.join(texts)} |")
    for door in DOORS:
        tried = [row for row in rows if row["door"] == door]
        right = sum(row.get("difference", 1) < WRONG for row in tried)
        lines.append(f"{door}: {right} of {len(tried)} right")
    return "\n".join(lines)


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--doors", default=",".join(DOORS))
    parser.add_argument("--log", type=Path, default=Path("doors.jsonl"))
    parser.add_argument("--table", action="store_true", help="print what the log has")
    options = parser.parse_args()
    rows = [json.loads(line) for line in options.log.read_text().splitlines()] if options.log.exists() else []
    if options.table:
        print(table(rows))
        return
    from torch_zoo import ROWS

    had = {(row["name"], row["door"]) for row in rows}
    for name in options.names or ROWS:
        for door in (d for d in options.doors.split(",") if (name, d) not in had):
            row = measured(name, door)
            with options.log.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(shown(row), flush=True)


if __name__ == "__main__":
    main()
