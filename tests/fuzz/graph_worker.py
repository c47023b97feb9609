"""A process that checks graphs: one JSON request a line in, one JSON answer a line out.

In: {"seed": n} or {"text": …}, with "levels" and "target". Out: {"kind", "signature", "detail", "elements", "text"};
the text of the graph comes with a failure. Invariant: whatever a graph does to this process, the parent
(graph_campaign.py) knows which graph it was.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import time
from typing import Any

os.environ.update(ARMILLARY_CACHE="0", ARMILLARY_COMPILE_JOBS="1")
os.environ.setdefault("ARMILLARY_NUM_THREADS", "2")


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Check one graph."""
    start, levels, target = time.perf_counter(), request["levels"], request["target"]
    text: str = request.get("text", "")
    if "seed" in request:
        drawn = generate(request["seed"])
        outcome = check(drawn.function, drawn.inputs, levels, target, request["seed"])
        text = to_text(drawn.function, drawn.inputs) if outcome.failed else ""
    else:
        outcome = check_text(text, levels, target)
    reply = dataclasses.asdict(outcome) | {"seconds": round(time.perf_counter() - start, 3)}
    if outcome.failed:
        reply["text"] = text
    return reply


def main() -> None:
    """Answer requests until the input ends."""
    out = os.fdopen(os.dup(1), "w")
    with contextlib.redirect_stdout(sys.stderr):
        for line in sys.stdin:
            try:
                reply = answer(json.loads(line))
            except Inconsistent as error:
                reply = {"kind": "inconsistent", "signature": str(error)[:60], "detail": str(error)}
            except Exception as error:
                reply = {"kind": "error", "signature": f"fuzzer: {type(error).__name__}", "detail": repr(error)}
            print(json.dumps(reply), file=out, flush=True)


if __name__ == "__main__":
    from graph_check import check, check_text, to_text
    from graph_motifs import generate
    from graph_values import Inconsistent

    main()
