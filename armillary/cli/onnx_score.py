"""Run ONNX's backend test-suite and print the score.

Runs the cases that come with the onnx package (nothing is downloaded) in worker processes, prints how many passed, were
refused with a reason, failed or crashed, and the most frequent reasons.

examples:
  armc onnx-score
  armc onnx-score --engine reference --filter "conv|pool"
  armc onnx-score -o score.jsonl           (interrupt and run again: it goes on)
  armc onnx-score --json score.json --show failed
  armc onnx-score --compare onnxruntime    (both scores, and the cases that only one passes)
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from armillary.backend.score import (
    ENGINE_NAMES,
    KINDS,
    STATUSES,
    Case,
    Result,
    counts,
    load_cases,
    read_results,
    result_line,
    run_suite,
)
from armillary.base.config import setting
from armillary.base.files import check_writable, write_atomic
from armillary.base.json_types import JsonObject
from armillary.cli._console import errors, output
from armillary.cli.options.models import count, fraction
from armillary.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `armc onnx-score`."""
    parser.add_argument("--engine", choices=ENGINE_NAMES, default="armillary", help="default: armillary")
    parser.add_argument("--compare", choices=ENGINE_NAMES, help="run this engine too, and print both scores")
    parser.add_argument("--filter", default="", metavar="REGEX", help="only cases whose <kind>/<name> matches")
    parser.add_argument("--kind", action="append", choices=KINDS, help="only this kind; repeatable")
    parser.add_argument("--jobs", type=count, default=0, help="processes (default: the CPUs)")
    parser.add_argument("--timeout", type=fraction, default=60.0, help="seconds for one case (default: 60)")
    parser.add_argument("-o", "--output", metavar="FILE", help="results as JSON lines; what is there is not run again")
    parser.add_argument("--json", metavar="FILE", help="write the counts and all results as one JSON file")
    parser.add_argument("--show", action="append", choices=STATUSES, default=[], help="list the cases of this status")


def run(args: argparse.Namespace) -> int:
    """Run what is not done yet, then print the tables."""
    if args.compare == args.engine:
        raise ConfigError(
            f"--compare {args.compare}: that is the engine itself", hint=f"one of {', '.join(ENGINE_NAMES)}"
        )
    for output_file in filter(None, (args.output, args.json)):
        check_writable(output_file)
    cases = load_cases(args.filter, tuple(args.kind or KINDS))
    if not cases:
        raise ConfigError(f"no case matches --filter {args.filter!r}", hint="names are such as node/test_relu")
    engines = [args.engine, *([args.compare] if args.compare else [])]
    results = {engine: _results(args, engine, cases) for engine in engines}
    _print(results[args.engine], args)
    if args.compare:
        _print_comparison(results)
    if args.json:
        _write_json(results, args)
    return 0


def _results(args: argparse.Namespace, engine: str, cases: dict[str, Case]) -> dict[str, Result]:
    """The results of one engine; those of the second one are kept in a file of its own."""
    file = Path(args.output) if args.output else None
    if file is not None and engine != args.engine:
        file = file.with_name(f"{file.stem}.{engine}{file.suffix}")
    known = read_results(file) if file else {}
    results = {name: known[name] for name in cases if name in known}
    todo = {name: case for name, case in cases.items() if name not in results}
    jobs = args.jobs or setting("ARMILLARY_NUM_THREADS")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    stream = file.open("a", encoding="utf-8") if file else None
    # auto_refresh would start a thread, and the workers are forked from this process
    with Progress(*columns, console=errors, auto_refresh=False, disable=not errors.is_terminal) as progress:
        task = progress.add_task(engine, total=len(cases), completed=len(results))
        for result in run_suite(todo, engine, jobs, args.timeout):
            results[result.case] = result
            if stream:
                stream.write(result_line(result))
                stream.flush()
            progress.update(task, advance=1, description=f"{engine} {_brief(results)}", refresh=True)
    if stream:
        stream.close()
    return results


def _brief(results: dict[str, Result]) -> str:
    return " ".join(f"{n} {status}" for status, n in Counter(r.status for r in results.values()).items())


def _print(results: dict[str, Result], args: argparse.Namespace) -> None:
    table = counts(results)
    output.print(_score_table(table))
    for status in ("unsupported", "failed", "crashed", "timeout"):
        _print_reasons(results, status)
    for result in results.values():
        if result.status in args.show:
            output.print(f"{result.status:11} {result.case}  {result.reason}", markup=False, highlight=False)


def _print_comparison(results: dict[str, dict[str, Result]]) -> None:
    """Both scores side by side, and how many cases only one of the engines passes."""
    shown = Table(box=None, pad_edge=False)
    for heading in ("engine", *STATUSES, "total"):
        shown.add_column(heading, justify="left" if heading == "engine" else "right")
    for engine, rows in results.items():
        row = counts(rows)["all"]
        shown.add_row(engine, *(str(row[s]) for s in STATUSES), str(sum(row.values())))
    output.print("\nscores:", highlight=False)
    output.print(shown)
    passed = {engine: {name for name, r in rows.items() if r.status == "passed"} for engine, rows in results.items()}
    first, second = passed
    for one, other in ((first, second), (second, first)):
        names = sorted(passed[one] - passed[other])
        output.print(f"passed by {one} and not by {other}: {len(names)}", highlight=False)
        for reason, times in Counter(_general(results[other][name].reason) for name in names).most_common(12):
            output.print(f"  {times:5d}  {other}: {reason}", markup=False, highlight=False)


def _write_json(results: dict[str, dict[str, Result]], args: argparse.Namespace) -> None:
    def record(engine: str) -> JsonObject:  # Any: JSON values
        rows = results[engine]
        cases = {name: {"status": r.status, "reason": r.reason, "seconds": r.seconds} for name, r in rows.items()}
        return {"engine": engine, "counts": counts(rows), "cases": cases}

    whole = record(args.engine) | ({"compared": record(args.compare)} if args.compare else {})
    write_atomic(args.json, json.dumps(whole, indent=1).encode())


def _score_table(table: dict[str, dict[str, int]]) -> Table:
    shown = Table(box=None, pad_edge=False)
    for heading in ("kind", *STATUSES, "total"):
        shown.add_column(heading, justify="left" if heading == "kind" else "right")
    for kind, row in table.items():
        if sum(row.values()):
            shown.add_row(kind, *(str(row[s]) for s in STATUSES), str(sum(row.values())))
    return shown


def _print_reasons(results: dict[str, Result], status: str, most: int = 25) -> None:
    reasons = Counter(_general(r.reason) for r in results.values() if r.status == status)
    if reasons:
        output.print(f"\n{status}:", highlight=False)
        for reason, times in reasons.most_common(most):
            output.print(f"  {times:5d}  {reason}", markup=False, highlight=False)


def _general(reason: str) -> str:
    """A reason without names and numbers, so that like ones are counted together."""
    plain = re.sub(r"\(\d+ nodes?, first: '[^']*'\)", "", reason)
    plain = re.sub(r"'[^']*'|\[[^\]]*\]|\([\d, ]*\)", "…", plain)
    return re.sub(r"-?\d+(\.\d+)?(e[-+]?\d+)?", "#", plain)[:110]
