"""PyTorch's own samples of its operators (OpInfo, the whole list) by our rules: right, wrong or refused.

In: names of rows of OpInfo, `name` or `name:variant` (none: all). Out: a line of JSON for each row, appended to
`--log`, which counts its samples by outcome and names the first text of each kind; rows that the log has are not run
again, so a run may be killed at any time. Then the counts, by row and by ATen's core operators, or with `--table` a
line for each row that is not right whole. Invariant: samples are of float32, int64 and bool, without gradients, and
what PyTorch itself does not export is not counted; a row is right where every other sample gives what eager gives.

    python benchmarks/torch_opinfo.py --log opinfo.jsonl --most 3
"""

from __future__ import annotations

import argparse
import functools
import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/frontend/pytorch"))

from opinfo_runs import core_operators, full_name, infos_of, kind_of, outcomes, without
from torch import _export as export
from torch.testing._internal.common_methods_invocations import op_db

KINDS = ("right", "wrong", "refused", "fault", "PyTorch refuses")
SECONDS = 60  # of a sample; what takes longer is a fault


def _stop(*_: object) -> None:
    raise TimeoutError(f"longer than {SECONDS} s")


def measured(info: Any, most: int) -> dict[str, Any]:
    """Run a row's samples, and count them by outcome."""
    start = time.process_time()
    row: dict[str, Any] = {"name": full_name(info), **dict.fromkeys(KINDS, 0), "texts": {}}
    signal.alarm(SECONDS)
    for dtype, text in outcomes(info, most):
        signal.alarm(SECONDS)
        kind = kind_of(text)
        row[kind] += 1
        if text:
            row["texts"].setdefault(kind, f"{dtype}: {text}"[:500])
    signal.alarm(0)
    return row | {"seconds": round(time.process_time() - start, 1)}


def verdict(row: dict[str, Any]) -> str:
    """What a row is: the worst of its samples."""
    return next((kind for kind in ("wrong", "fault", "refused", "right") if row[kind]), "PyTorch refuses")


def counted(rows: Iterable[dict[str, Any]]) -> str:
    """How many rows are what, and the share that is right."""
    counts = Counter(map(verdict, rows))
    tried = sum(counts.values()) - counts["PyTorch refuses"]
    share = 100 * counts["right"] / max(1, tried)
    return ", ".join(f"{counts[kind]} {kind}" for kind in KINDS) + f": {share:.1f} % of {tried} right"


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--log", type=Path, default=Path("opinfo.jsonl"))
    parser.add_argument("--most", type=int, default=3, help="samples of a row and dtype")
    parser.add_argument("--part", default="0/1", help="K/N: each Nth row from the Kth on")
    parser.add_argument("--table", action="store_true", help="print rows that are not right whole")
    options = parser.parse_args()
    registrations = export.utils._materialize_cpp_cia_ops  # collected once, not for each sample
    export.utils._materialize_cpp_cia_ops = functools.cache(registrations)
    signal.signal(signal.SIGALRM, _stop)
    lines = options.log.read_text().splitlines() if options.log.exists() else []
    rows = {row["name"]: row for row in map(json.loads, lines)}
    part, parts = map(int, options.part.split("/"))
    for info in () if options.table else op_db[part::parts]:
        name = full_name(info)
        if name in rows or without(name) or (options.names and not {name, info.name} & {*options.names}):
            continue
        rows[name] = row = measured(info, options.most)
        with options.log.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(name, verdict(row), next(iter(row["texts"].values()), ""), flush=True)
    if options.table:
        for row in sorted(rows.values(), key=lambda r: (verdict(r), r["name"])):
            if verdict(row) != "right":
                print("|", row["name"], "|", " ".join(str(row[k]) for k in KINDS), "|", row["texts"], "|")
    print("rows:", counted(rows.values()))
    print("rows but those that docs/limits.md leaves out:", counted(r for n, r in rows.items() if not without(n)))
    core = {name: [full_name(info) for info in infos_of(name)] for name in core_operators()}
    groups = [[rows[n] for n in names if n in rows] for names in core.values()]
    print("ATen's core:", counted({k: sum(r[k] for r in group) for k in KINDS} for group in groups if group))


if __name__ == "__main__":
    main()
