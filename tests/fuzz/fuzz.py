"""`python -m tests.fuzz.fuzz` (`make fuzz MINUTES=5`): random cases of every kind until the time is over.

In: --minutes, --seed (a fresh one otherwise, printed), --kinds, --jobs. Out: what was run of each kind, and findings
with the command that repeats each; exit code 1 if there are any. With --shrink a finding becomes a text case in
tests/fuzz/cases, which pytest runs from then on. Invariant: a case is its kind and its seed; every case is counted.
"""

from __future__ import annotations

import argparse
import collections
import json
import random
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import graph_campaign  # noqa: E402

# Cases of each kind in a round.
KINDS = {"onnx": 10, "window": 5, "relay": 3, "mutated": 3, "nudged": 3, "damaged": 2, "grown": 3, "open": 4}
SECONDS = 200.0  # the C target hands a window of 7 by 3 to gcc for 20
FINE = ("agrees", "rejected", "refused", "doubtful")  # doubtful ones are printed, but do not fail a run


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="how long (default: 5)")
    parser.add_argument("--seed", type=int, help="of the first case (default: a fresh one)")
    parser.add_argument("--count", type=int, default=0, help="stop after so many cases of each kind")
    parser.add_argument("--kinds", default=",".join(KINDS), help=f"some of {', '.join(KINDS)}")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--levels", help="opt levels, with commas (default: 0 to 3)")
    parser.add_argument("--target", help="target (default: drawn)")
    parser.add_argument("--how", help='"", params, so or tar (default: drawn)')
    parser.add_argument("--state", type=Path, help="file that every record is added to")
    parser.add_argument("--shrink", action="store_true", help="make a text case of each kind of finding")
    return parser.parse_args(argv)


class Campaign:
    """Counts and findings, and the cases still to come."""

    def __init__(self, options: argparse.Namespace, seed: int) -> None:
        self.options, self.seed = options, seed
        self.kinds = [k for kind in options.kinds.split(",") for k in [kind] * KINDS[kind]]
        self.end = time.monotonic() + options.minutes * 60
        self.counts: dict[str, collections.Counter[str]] = {k: collections.Counter() for k in self.kinds}
        self.seconds: collections.Counter[str] = collections.Counter()
        self.refused: collections.Counter[str] = collections.Counter()
        self.findings: list[graph_campaign.Record] = []
        self.cache = ""  # folder of kernels: processes that start again find those of the packages that are damaged
        self.lock, self.given = threading.Lock(), 0

    def next_case(self) -> graph_campaign.Record | None:
        """The next request, or None when the time is over."""
        with self.lock:
            number, place = divmod(self.given, len(self.kinds))
            kind = self.kinds[place]
            index = number * KINDS[kind] + place - self.kinds.index(kind)
            if time.monotonic() > self.end or (self.options.count and number * len(self.kinds) >= self.options.count):
                return None
            self.given += 1
        request: graph_campaign.Record = {"kind": kind, "seed": self.seed + index}
        for name in ("target", "how"):
            if getattr(self.options, name) is not None:
                request[name] = getattr(self.options, name)
        if self.options.levels:
            request["levels"] = [int(level) for level in self.options.levels.split(",")]
        return request

    def keep(self, request: graph_campaign.Record, reply: graph_campaign.Record) -> None:
        """Count an answer; print a finding."""
        kind = request["kind"]
        with self.lock:
            self.counts[kind][reply["kind"]] += 1
            self.seconds[kind] += reply.get("seconds", 0)
            record = {**reply, "what": reply["kind"], **request}
            if reply["kind"] == "refused" and kind in ("onnx", "window", "relay", "nudged"):
                self.refused[f"{kind}: {reply['signature']}"] += 1
            if reply["kind"] not in FINE:
                self.findings.append(record)
            if reply["kind"] not in FINE or reply["kind"] == "doubtful":
                print(f"{kind} {request['seed']}: {reply['kind']}: {reply['detail'][:600]}", flush=True)
            if self.options.state is not None:
                with self.options.state.open("a") as file:
                    file.write(json.dumps(record) + "\n")

    def work(self) -> None:
        """Ask one process until there is nothing more to ask."""
        worker = graph_campaign.Worker("fuzz_worker.py", self.cache)
        while (request := self.next_case()) is not None:
            reply = worker.ask(request, SECONDS)
            if reply["kind"] in ("crash", "timeout") and self._is_anothers(request):
                reply = {"kind": "rejected", "signature": "a truth crashes or hangs", "detail": ""}
            self.keep(request, reply)
        worker.close()

    def _is_anothers(self, request: graph_campaign.Record) -> bool:
        """Whether ONNX Runtime or the reference alone do the same."""
        if request["kind"] not in ("onnx", "window", "mutated", "nudged", "open"):
            return False
        worker = graph_campaign.Worker("fuzz_worker.py", self.cache)
        again = worker.ask({**request, "truths_alone": True}, SECONDS)
        worker.close()
        return again["kind"] in ("crash", "timeout")

    def run(self) -> None:
        """All processes until the end."""
        threads = [threading.Thread(target=self.work, daemon=True) for _ in range(self.options.jobs)]
        with tempfile.TemporaryDirectory(prefix="armillary-fuzz-") as self.cache:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    def summary(self) -> str:
        """What was run, as lines."""
        lines = []
        for kind, counts in self.counts.items():
            message = ", ".join(f"{n} {what}" for what, n in counts.most_common())
            lines.append(f"{kind:8} {sum(counts.values()):6} cases in {self.seconds[kind]:.0f} s: {message}")
        lines += [f"  refused {n:5} × {signature}" for signature, n in self.refused.most_common(12)]
        seen = collections.Counter((f["kind"], f["signature"]) for f in self.findings)
        for (kind, signature), n in seen.most_common():
            seeds = [f["seed"] for f in self.findings if (f["kind"], f["signature"]) == (kind, signature)]
            lines.append(f"FOUND {n:4} × {kind}: {signature}")
            lines.append(f"  again: python -m tests.fuzz.fuzz --kinds {kind} --count 1 --seed {seeds[0]}")
        return "\n".join([*lines, f"{len(self.findings)} findings (seed {self.seed})"])


def main(argv: list[str] | None = None) -> int:
    """Run; the exit code."""
    options = arguments(argv)
    seed = random.SystemRandom().randrange(1 << 40) if options.seed is None else options.seed
    print(f"seed {seed}, {options.minutes:g} minutes, kinds {options.kinds}", flush=True)
    campaign = Campaign(options, seed)
    campaign.run()
    print(campaign.summary(), flush=True)
    if options.shrink:
        import onnx_shrink

        for path in onnx_shrink.write_cases(campaign.findings, HERE / "cases"):
            print(path)
    return 1 if campaign.findings else 0


if __name__ == "__main__":
    sys.exit(main())
