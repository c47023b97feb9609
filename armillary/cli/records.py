"""Look at, merge and convert logs of tuning.

`best` keeps the fastest record of each workload, `merge` joins logs and leaves out doubles and damaged lines, `convert`
writes logs of other tools in today's form and names the records that mean other loops, `show` lists the best records,
`package` puts the best into a wheel: where it is installed, builds use them by themselves.

examples:
  armc records show resnet18.log
  armc records best resnet18.log -o best.log
  armc records merge a.log b.log -o all.log
  armc records convert old.log -o new.log
  armc records package a.log b.log --name rk3399 -o dist
"""

from __future__ import annotations

import argparse
from collections import Counter

from armillary.autotvm.errors import TuningError
from armillary.autotvm.record import Pair, best_of, encode, foreign_reason, load_from_file
from armillary.autotvm.record_package import write_record_package
from armillary.base.files import write_atomic
from armillary.cli._console import note

ACTIONS = ("show", "best", "merge", "convert", "package")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `armc records`."""
    parser.add_argument("ACTION", choices=ACTIONS)
    parser.add_argument("LOG", nargs="+", help="logs that `armc tune` or log_to_file wrote")
    parser.add_argument("-o", "--output", default="", help="the log to write; of a package, the folder")
    parser.add_argument("--name", default="", help="of a package: small letters, digits and _, as in rk3399")
    parser.add_argument("--package-version", default="1.0", metavar="N", help="of a package (default: 1.0)")


def run(args: argparse.Namespace) -> int:
    """Read all logs, do what is asked."""
    if (args.ACTION == "show") == bool(args.output):
        message = "shows, and takes no --output" if args.output else "needs -o LOG"
        raise TuningError(f"records {args.ACTION}: {message}")
    pairs = [pair for log in args.LOG for pair in load_from_file(log)]
    if args.ACTION == "show":
        return _show(pairs)
    if args.ACTION == "package":
        return _pack(args, pairs)
    retained = best_of(pairs) if args.ACTION == "best" else _without_doubles(pairs)
    if args.ACTION == "convert":
        retained = _known(retained)
    write_atomic(args.output, "".join(f"{encode(*pair)}\n" for pair in retained).encode())
    note(f"{args.output}: {len(retained)} of {len(pairs)} records")
    return 0


def _pack(args: argparse.Namespace, pairs: list[Pair]) -> int:
    if not args.name:
        raise TuningError("records package: needs --name", hint="--name rk3399")
    retained = _known(best_of(pairs))
    path = write_record_package(retained, args.name, args.package_version, args.output)
    note(f"{path}: {len(retained)} records; pip install {path}")
    return 0


def _show(pairs: list[Pair]) -> int:
    trials = Counter(inp.task.workload for inp, _ in pairs)
    failed = Counter(inp.task.workload for inp, result in pairs if result.error_no)
    for inp, result in best_of(pairs):
        knobs = ", ".join(f"{name} {entity}" for name, entity in inp.config.entity_map.items())
        workload = inp.task.workload
        count = trials[workload]
        message = f"{count} trial{'s' * (count > 1)}" + (f", {failed[workload]} failed" if failed[workload] else "")
        print(f"{result.mean * 1e3:10.4f} ms  {workload[0]} {_short(workload[1:])}: {knobs} ({message})")
    for workload in (w for w in trials if trials[w] == failed[w]):
        texts = {result.error.partition("\n")[0] for inp, result in pairs if inp.task.workload == workload}
        print(f"    failed     {workload[0]} {_short(workload[1:])}: {'; '.join(sorted(texts)[:3])}")
    return 0


def _short(args: tuple[object, ...]) -> str:
    """The shapes of tensors, then the other arguments."""
    return " ".join(
        "x".join(map(str, a[1])) if isinstance(a, tuple) and len(a) == 3 and a[0] == "TENSOR" else str(a) for a in args
    )


def _without_doubles(pairs: list[Pair]) -> list[Pair]:
    pairs_by_text = {encode(*pair): pair for pair in pairs}
    return list(pairs_by_text.values())


def _known(pairs: list[Pair]) -> list[Pair]:
    for name in dict.fromkeys(inp.task.name for inp, _ in pairs):
        reason = foreign_reason(name)
        if reason:
            note(reason)
    return [pair for pair in pairs if not foreign_reason(pair[0].task.name)]
