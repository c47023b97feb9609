"""The share of ATen's core operators that pass PyTorch's own samples of them whole.

In: names of operators (none: all of the core set). Out: a line of JSON for each, appended to `--log`, with the samples
that pass and the texts of those that do not; operators that the log has are not run again. Then the share. Invariant:
an operator passes where every sample of it in float32, int64 and bool gives what eager PyTorch gives; samples that
PyTorch's own export refuses are not counted, operators of which OpInfo has no sample are listed apart.

    python benchmarks/torch_opinfo.py --log opinfo.jsonl --most 20
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/frontend/pytorch"))

import torch
from opinfo_runs import core_operators, infos_of, is_taken, outcome, samples_of

DTYPES = (torch.float32, torch.int64, torch.bool)


def failures_of(name: str, most: int, row: dict[str, Any]) -> Iterator[str]:
    """Run an operator's samples, count those that run, and yield what fails."""
    for info in infos_of(name):
        for dtype in (d for d in DTYPES if d in info.supported_dtypes("cpu")):
            torch.manual_seed(0)
            for number, (model, tensors) in enumerate(samples_of(info, dtype, most)):
                text = outcome(model, tensors)
                if not is_taken(text):
                    row["refused by PyTorch"] += 1
                    continue
                row["samples"] += 1
                if text:
                    yield f"{info.name} {info.variant_test_name} {dtype} {number}: {text}"[:400]


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--log", type=Path, default=Path("opinfo.jsonl"))
    parser.add_argument("--most", type=int, default=1000, help="samples of an operator and dtype")
    options = parser.parse_args()
    lines = options.log.read_text().splitlines() if options.log.exists() else []
    rows = {row["name"]: row for row in map(json.loads, lines)}
    for name in options.names or sorted(core_operators()):
        if name in rows:
            continue
        start = time.perf_counter()
        row: dict[str, Any] = {"name": name, "samples": 0, "refused by PyTorch": 0}
        row["failures"] = list(failures_of(name, options.most, row))
        row["seconds"] = round(time.perf_counter() - start, 1)
        rows[name] = row
        with options.log.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(name, row["samples"], len(row["failures"]), (row["failures"] or [""])[0], flush=True)
    tried = [row for row in rows.values() if row["samples"]]
    whole = [row for row in tried if not row["failures"]]
    share = 100 * len(whole) / max(1, len(tried))
    print(f"{len(whole)} of {len(tried)} operators pass whole ({share:.1f} %); without a sample that PyTorch exports: ")
    print(", ".join(name for name, row in rows.items() if not row["samples"]))


if __name__ == "__main__":
    main()
