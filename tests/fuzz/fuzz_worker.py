"""A process that checks cases of every kind: one JSON request a line in, one JSON answer a line out.

In: {"kind", "seed"}, and "levels", "target", "how" where they are not to be drawn. Out: {"kind", "signature", "detail",
"elements", "seconds"} as in graph_worker.py. Invariant: the process has a limit of memory, and one of time per case
that the parent keeps (graph_campaign.py); what it writes to its own stdout does not mix with the answers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import random
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import graph_check
import graph_motifs
import graph_values
import grow
import mutate
import nudge
import onnx_check
import onnx_draw
import onnx_kit
import onnx_truth

MEMORY = 8 << 30
TARGETS = ("llvm",) * 7 + ("llvm -mcpu=native",) * 2 + ("c",)
FORMS = ("",) * 7 + ("params", "tar", "so")
LEVELS = (0, 1, 2, 3)


def plan(seed: int, request: dict[str, Any]) -> tuple[list[int], str, str]:
    """Levels, target and form of package of a case."""
    rng = random.Random(seed * 7 + 1)
    target, how = rng.choice(TARGETS), rng.choice(FORMS)
    return (
        list(request.get("levels", LEVELS)),
        str(request.get("target", target)),
        str(request.get("how", how)),
    )


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Check one case."""
    start, kind, seed = time.perf_counter(), request["kind"], request["seed"]
    levels, target, how = plan(seed, request)
    if request.get("truths_alone"):
        onnx_truth.truths(*mutate.truth_case(seed) if kind == "mutated" else onnx_case(kind, seed).parts())
        outcome = graph_check.Outcome("agrees")
    elif kind == "relay":
        drawn = graph_motifs.generate(seed)
        outcome = graph_check.check(drawn.function, drawn.inputs, levels, target, seed)
    elif kind == "grown":
        outcome = grow.check(seed)
    elif kind in ("onnx", "window", "nudged", "open"):
        drawn = onnx_case(kind, seed)
        outcome = onnx_check.check(drawn, levels, target, how)
        if kind == "open" and outcome.kind == "agrees":
            outcome = onnx_check.check_other_sizes(drawn, seed, target)
    else:
        outcome = mutate.CHECKS[kind](seed)
    return dataclasses.asdict(outcome) | {"seconds": round(time.perf_counter() - start, 3)}


def onnx_case(kind: str, seed: int) -> Any:
    """The model of a seed."""
    if kind == "nudged":
        return nudge.generate(seed)
    if kind == "open":
        drawn = onnx_draw.generate_window(seed) if seed % 3 == 0 else onnx_draw.generate(seed)
        return onnx_draw.opened(drawn, apart=seed % 2 == 0)
    return onnx_draw.generate_window(seed) if kind == "window" else onnx_draw.generate(seed)


def main() -> None:
    """Answer requests until the input ends."""
    os.environ.update(ARMILLARY_COMPILE_JOBS="1")
    os.environ.setdefault("ARMILLARY_NUM_THREADS", "2")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    out = os.fdopen(os.dup(1), "w")
    with contextlib.redirect_stdout(sys.stderr):
        for line in sys.stdin:
            request = json.loads(line)
            try:
                reply = answer(request)
            except onnx_kit.Unfit as error:
                reply = {"kind": "rejected", "signature": "no graph", "detail": str(error)}
            except graph_values.Inconsistent as error:
                reply = {"kind": "inconsistent", "signature": str(error)[:60], "detail": str(error)}
            except MemoryError as error:  # where outputs of hundreds of megabytes are compared
                reply = {"kind": "rejected", "signature": "too large to compare", "detail": repr(error)}
            except Exception as error:
                reply = {"kind": "error", "signature": f"fuzzer: {type(error).__name__}", "detail": repr(error)}
            print(json.dumps(reply), file=out, flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="armillary-fuzz-") as cache:
        # the levels of a graph have most of their kernels in common
        os.environ["ARMILLARY_CACHE_DIR"] = sys.argv[1] if len(sys.argv) > 1 else cache
        main()
