"""Tune the kernels of a model on this machine, or on devices behind a tracker.

Measures choices of algorithm and register tile for each convolution and product of a model, together with what is fused
to it, and appends every trial to a log. In the end the fastest of each are timed where the network calls them, then the
network with and without the best of those, and what does not make it faster is marked as such. `armc compile
--tuning-records LOG` then takes the best of what is left.

examples:
  armc tune resnet18.onnx -o resnet18.log
  armc tune model.onnx -o model.log --tuner xgb --trials 300 --early-stopping 80 --time-budget 1200
  armc tune model.onnx -o model.log --resume --layouts-together
  armc tune bert.onnx -o bert.log --sizes seq=8,128,512
  armc tune model.onnx -o model.log --target "llvm -mtriple=aarch64-linux-gnu" \\
      --rpc-tracker 192.168.1.2:9190 --rpc-key rk3399
  armc tune model.onnx -o model.log --target opencl --target-host "llvm -mtriple=aarch64-linux-gnu" \\
      --rpc-tracker 192.168.1.2:9190 --rpc-key android
  armc tune model.onnx -o model.log --tasks list
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from armillary.autotvm.errors import TuningError
from armillary.autotvm.measure.measure import MeasureErrorNo, MeasureOption, failed
from armillary.autotvm.measure.option import measure_option
from armillary.autotvm.record import LogFile, Pair, best_of, encode, last_of_each, load_from_file
from armillary.autotvm.task.network import extract_from_program
from armillary.autotvm.task.task import Task, create
from armillary.autotvm.tuner.callback import log_to_file
from armillary.autotvm.tuner.finals import finals
from armillary.autotvm.tuner.gains import Gains
from armillary.autotvm.tuner.joint_check import choose_layouts
from armillary.autotvm.tuner.model_tuner import ModelTuner
from armillary.autotvm.tuner.names import TUNERS, make_tuner
from armillary.autotvm.tuner.network_check import NO_TIME_LEFT, Network, check, least_seconds
from armillary.autotvm.tuner.network_finals import finals_in_network, front_runners, results_in_network
from armillary.autotvm.tuner.shared_time import tune_together
from armillary.autotvm.tuner.tuner import Tuner
from armillary.base.aliases import Array
from armillary.base.files import check_writable
from armillary.base.lazy import deferred
from armillary.cli._console import is_terminal, note, terminal_width
from armillary.cli.options.models import (
    add_layout_arguments,
    add_target_arguments,
    comma_list,
    count,
    fraction,
    in_desired_layout,
    input_shapes,
    load_model,
    positive,
    target_of,
)
from armillary.cli.options.sizes import add_sizes_argument, all_sizes
from armillary.cli.pages.tune_output import closing_table, named, shown
from armillary.errors import ConfigError
from armillary.frontend.formats import FORMATS, MODEL_FILES
from armillary.ir import IRModule
from armillary.relay.op import get_op
from armillary.target import Target

with deferred():
    from armillary.autotvm.measure.dask_builder import DaskBuilder
    from armillary.autotvm.measure.local_builder import LocalBuilder
    from armillary.autotvm.measure.local_runner import LocalRunner
    from armillary.autotvm.measure.rpc_runner import PORT, RPCRunner
    from armillary.rpc.programs import parse_address

CHECK_PART = 0.15  # of the time budget is for the end-to-end check
NETWORK_PART = 0.3  # of the time budget is for front-runners that are timed in the network, before that check
LAYOUTS_PART = 0.25  # of the time budget is for layouts that are chosen together, half of it to measure kernels
FINALS_PART = 0.15  # of the time that the tasks left, for measuring front-runners again
FINER = 0.2  # times the gain that a tuner stops at, where there is time left


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `armc tune`."""
    parser.add_argument("FILE", help=f"{MODEL_FILES}; - for Relay text on stdin")
    parser.add_argument("--model-format", choices=FORMATS, default="", help="its form (default: by the suffix)")
    parser.add_argument("-o", "--output", default="", metavar="LOG", help="the log of trials, appended to")
    add_target_arguments(parser, "llvm")
    parser.add_argument("--target-host", default="", metavar="TARGET", help="of a device: its host")
    add_layout_arguments(parser)
    parser.add_argument("--enable-autoscheduler", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--tasks", default="", help='"0", "0,2", "3-5", "-3"; "list" shows them (default: all)')
    parser.add_argument("--tuning-records", default="", metavar="LOG", help="trials of other models, to learn from")
    parser.add_argument("--input-shapes", default="", metavar="SHAPES", help='"data:[1,3,224,224] mask:[1,224]"')
    add_sizes_argument(parser, each="a trial times its kernel")
    parser.add_argument(
        "--ops", default="", help="of nn.conv2d, nn.dense, nn.batch_matmul, nn.attention, qnn.… (default: all)"
    )
    parser.add_argument("--tuner", default="model", metavar="NAME", help=f"{', '.join(TUNERS)} (default: model)")
    parser.add_argument("--trials", type=positive, default=64, help="at most, for each task (default: 64)")
    parser.add_argument("--early-stopping", type=count, default=0, metavar="N", help="after N trials without gain")
    parser.add_argument("--time-budget", type=fraction, default=0, metavar="SECONDS", help="of all tasks together")
    parser.add_argument("--resume", action="store_true", help="go on with the trials of the log")
    parser.add_argument("--number", type=positive, default=1, help="runs for one time (default: 1)")
    parser.add_argument("--repeat", type=positive, default=6, help="times for one trial (default: 6)")
    parser.add_argument("--min-repeat-ms", type=count, default=0, metavar="MS", help="least length of a time")
    parser.add_argument("--timeout", type=fraction, default=20, metavar="SECONDS", help="of one trial (default: 20)")
    parser.add_argument("--parallel", type=count, default=0, help="builds at a time (default: one for each CPU)")
    parser.add_argument("--cluster", default="", metavar="ADDRESS", help="build on the Dask cluster of this scheduler")
    parser.add_argument("--seed", type=count, default=0, help="of what tuners draw by lot (default: 0)")
    parser.add_argument("--no-end-to-end", action="store_true", help="keep records that were not tried in the network")
    parser.add_argument(
        "--layouts-together", action="store_true", help="then try other blocks of channels for all convolutions at once"
    )
    parser.add_argument("--check-seconds", type=fraction, default=2, metavar="N", help="for a record (default: 2)")
    parser.add_argument("--rpc-tracker", default="", metavar="HOST[:PORT]", help="run on its devices (port: 9190)")
    parser.add_argument("--rpc-key", default="", metavar="KEY", help="the kind of device")


def run(args: argparse.Namespace) -> int:
    """Extract tasks, tune each, measure the front-runners again, keep what makes the network faster."""
    _check_device(args)
    if args.enable_autoscheduler:
        raise ConfigError("--enable-autoscheduler: AutoTVM tunes here", hint="leave it out")
    args.target = target_of(args)
    log = Path(args.output)
    if not _only_lists(args):
        _check_log(log, args)
    module, params = load_model(args.FILE, input_shapes(args.input_shapes), form=args.model_format)
    if args.resume and log.is_file():
        _another_chance(log)
    try:
        return tune_module(in_desired_layout(module, args), params, args)
    except KeyboardInterrupt:
        if log.is_file() and log.stat().st_size:
            note(f"{log} has the trials so far: --resume goes on with them")
        raise


def _only_lists(args: argparse.Namespace) -> bool:
    return args.tasks in ("list", "help")


def _check_log(log: Path, args: argparse.Namespace) -> None:
    if not args.output:
        raise TuningError("tuning needs a log for its trials", hint="-o model.log; only --tasks list goes without")
    check_writable(log)
    if log.exists() and log.stat().st_size and not args.resume:
        message = f"the log {str(log)!r} has trials already"
        raise TuningError(message, hint="--resume goes on with them; or name another log")


def _another_chance(log: Path) -> None:
    """Records for whose check in the network an earlier call had no time count again as they were measured."""
    good, late = dict[object, Pair](), dict[object, Pair]()
    for pair in load_from_file(log, report=False):
        key = (str(pair[0].target), pair[0].task.workload, pair[0].config.key())
        late.pop(key, None)
        if not pair[1].error_no:
            good[key] = pair
        elif pair[1].error == NO_TIME_LEFT and key in good:
            late[key] = good[key]
    LogFile(log).append([encode(*pair) for pair in late.values()])


def tune_module(module: IRModule, params: Mapping[str, Array], args: argparse.Namespace, of_all: int = 0) -> int:
    """Tune a module in memory as the options say; `of_all` trials are shared by its tasks."""
    option, where = _option(args), _target(args)
    args.tuning_records = _earlier(args.tuning_records)
    ops = [get_op(name) for name in comma_list(args.ops)] or None
    sizes = all_sizes(args.sizes)
    tasks = extract_from_program(module, params, where, ops=ops, sizes=sizes)
    if _only_lists(args):
        print("Available Tasks for tuning:")
        print("\n".join(f"  {place}. {named(task)} (len={len(task.config_space)})" for place, task in enumerate(tasks)))
        return 0
    tasks = [tasks[place] for place in places(args.tasks, len(tasks))]
    if not tasks:
        note("there is nothing to tune: no convolution or product of the model has a choice")
        return 0
    args.trials = max(1, of_all // len(tasks)) if of_all else args.trials
    until = time.monotonic() + args.time_budget if args.time_budget else math.inf
    of_layouts = LAYOUTS_PART * args.time_budget if args.layouts_together else 0.0
    network, seconds = Network(module, dict(params), where, option["runner"], sizes), 0.0
    if not args.no_end_to_end:
        with network:
            seconds = least_seconds(network.timed(network.built([])))
    gains = Gains(seconds)
    if _tune_all(args, tasks, option, gains, until - of_layouts) and not args.no_end_to_end:
        with network:
            _in_network(args, network, tasks, gains, until - of_layouts - CHECK_PART * args.time_budget)
            _check(args, network, tasks, gains, until - of_layouts)
    if args.layouts_together:
        with network:
            choose_layouts(network, tasks, option, Path(args.output), until - of_layouts / 2, args.check_seconds, note)
        option["builder"].close()
        option["runner"].close()
    return 0


def _earlier(log: str) -> str:
    """A log of earlier trials; one that is not there yet has none."""
    if log and not Path(log).exists():
        note(f"--tuning-records {log}: there is no such file yet, so nothing is learnt from it")
        return ""
    return log


def _tune_all(args: argparse.Namespace, tasks: list[Task], option: MeasureOption, gains: Gains, until: float) -> bool:
    """Tune each task for its part of the time, by how long its calls take; whether there were new trials."""
    end = until if args.no_end_to_end else until - (CHECK_PART + NETWORK_PART) * args.time_budget
    weights = [task.calls * next(iter(task.template.estimates(task)), (0, 1.0))[1] for task in tasks]
    is_new, tuners = False, list[Tuner]()
    for place, task in enumerate(tasks):
        now = time.monotonic()
        left = (end - now) * weights[place] / sum(weights[place:])
        tuner, has_new = _tune(args, task, f"[Task {place + 1:2d}/{len(tasks):2d}] ", option, now + left, gains)
        tuners.append(tuner)
        if has_new:
            is_new = True
            if not is_terminal(sys.stderr):
                note(f"{gains.summary()}{_time_left(end)}")
    if args.time_budget and not args.early_stopping:
        is_new = _go_on(args, tuners, option, gains, end) or is_new
    for line in closing_table(gains, terminal_width()):
        note(line)
    if gains.rows():
        note(gains.summary())
    return is_new


def _go_on(args: argparse.Namespace, tuners: list[Tuner], option: MeasureOption, gains: Gains, end: float) -> bool:
    """Spend the time that is left where the network has most to gain, for smaller gains; whether there were trials."""
    before = {id(tuner): tuner.trials for tuner in tuners}
    for tuner in tuners:
        if isinstance(tuner, ModelTuner):
            tuner.worth *= FINER
    seconds = (1 - FINALS_PART) * (end - time.monotonic())
    tune_together(tuners, option, seconds, [gains, log_to_file(args.output)], most=args.trials)
    option["builder"].close()
    option["runner"].close()
    changed = [tuner for tuner in tuners if tuner.trials > before[id(tuner)]]
    for tuner in changed:
        _finals(args, tuner, option, gains)
    if changed:
        spent = sum(tuner.trials - before[id(tuner)] for tuner in changed)
        note(f"{spent} more trials of {len(changed)} tasks; {gains.summary()}{_time_left(end)}")
    return bool(changed)


def _finals(args: argparse.Namespace, tuner: Tuner, option: MeasureOption, gains: Gains) -> None:
    """Measure the front-runners of a task again, in turns."""
    again = finals(tuner.task, load_from_file(args.output, report=False), option)
    LogFile(args.output).append([encode(*pair) for pair in again])
    gains(tuner, [inp for inp, _ in again], [result for _, result in again])


def _time_left(end: float) -> str:
    """How long tuning may go on, where that is limited."""
    return f", {max(0.0, end - time.monotonic()):.0f} s left" if math.isfinite(end) else ""


def _in_network(args: argparse.Namespace, network: Network, tasks: list[Task], gains: Gains, until: float) -> None:
    """Time the front-runners of all tasks in the network, so that the best one there is the one that is checked."""
    records = list(load_from_file(args.output, report=False))
    rows = {task.workload: front_runners(task, records) for task in tasks}
    names = {task.workload: task.names for task in tasks}
    timed = finals_in_network(network, {w: field for w, (own, field) in rows.items() if own is not None}, names, until)
    for workload, (own, _) in rows.items():
        if own is None or not timed.get(workload):
            continue
        timed_pairs = results_in_network(own, timed[workload], records)
        LogFile(args.output).append([encode(*pair) for pair in timed_pairs])
        gains(None, [inp for inp, _ in timed_pairs], [result for _, result in timed_pairs])
    if timed:
        note(
            f"{sum(map(len, timed.values()))} front-runners timed in the network; {gains.summary()}{_time_left(until)}"
        )


def _check(args: argparse.Namespace, network: Network, tasks: list[Task], gains: Gains, until: float) -> None:
    """Time the network with and without each record; those that do not pay are marked in the log."""
    pairs = [pair for pair in best_of(load_from_file(args.output, report=False)) if gains.of(pair) > 0]
    pairs.sort(key=gains.of, reverse=True)
    names = {task.workload: task.names for task in tasks}
    verdict = check(network, pairs, args.check_seconds, until, names)
    lines = [line for pair, message in verdict.dropped for line in _withdrawn(args.output, pair, message)]
    LogFile(args.output).append(lines)
    for pair, message in verdict.dropped:
        note(f"not used: {pair[0].task.name} {pair[0].task.args[0][1]}: {message}")
    for change in sorted(verdict.changes, key=lambda c: c.with_it - c.without):
        what = ", ".join(sorted(change.names)) if len(change.names) < 4 else f"{len(change.names)} kernels"
        note(
            f"used: {what}: {1e6 * change.without:.1f} us of a run without records, {1e6 * change.with_it:.1f} us with"
        )
    faster = 100 * (1 / verdict.ratio - 1)
    note(
        f"{args.output}: the network takes {1e3 * verdict.after:.3f} ms with {len(verdict.kept)} of {len(tasks)} "
        f"records, {1e3 * verdict.before:.3f} ms without: {faster:.1f} % faster"
    )


def _withdrawn(log: str, pair: Pair, message: str) -> list[str]:
    """Lines after which no configuration of a task that was measured faster than a build's own choice is used."""
    task = pair[0].task
    mine = [p for p in last_of_each(load_from_file(log, report=False)) if p[0].task.workload == task.workload]
    own = next(iter(task.template.estimates(_whole(task))), (-1, 0.0))[0]
    limit = min((r.mean for g, r in mine if g.config.index == own), default=math.inf)
    return [
        encode(g, failed(MeasureErrorNo.UNKNOWN_ERROR, message, r.all_cost))
        for g, r in mine
        if g.config.index != own and r.mean <= limit
    ]


def _whole(task: Task) -> Task:
    """The task of a record, which has no space, with its space."""
    return create(task.name, task.args, task.target)


def _target(args: argparse.Namespace) -> Target:
    return Target(args.target, host=args.target_host) if args.target_host else Target(args.target)


class RangeError(TuningError, AssertionError):
    """A text that names no tasks; scripts of tvmc catch an AssertionError."""


def places(text: str, count: int) -> list[int]:
    """The numbers of tasks that a text such as "0,2" or "3-5" means; "" is all of them."""
    indices: list[int] = []
    for part in text.split(",") if text else [f"0-{max(0, count - 1)}"]:
        first, dash, last = part.strip().partition("-")
        wrong = ""
        if not (first or last):
            wrong = "Missing lhs or rhs for range expression"
        elif not (first or last).isdecimal() or (first and last and not last.isdecimal()):
            wrong = "Malformed range expression"
        if wrong:
            hint = '"0", "0,2", "3-5", "-3", "3-" or "list"'
            raise RangeError(f"--tasks {text!r}: {wrong}: cannot read {part!r}", hint=hint)
        begin = int(first or 0)
        indices += range(begin, int(last) + 1 if last else count if dash else begin + 1)
        if count and indices and indices[-1] >= count:
            wrong = "Right-hand side expression out of range" if dash else "Task index out of range"
            raise RangeError(f"--tasks {text!r}: {wrong}: there are {count} tasks, from 0 on", hint="--tasks list")
    return list(dict.fromkeys(indices)) if count else []


def _check_device(args: argparse.Namespace) -> None:
    if bool(args.rpc_key) != bool(args.rpc_tracker):
        raise TuningError("--rpc-tracker and --rpc-key go together", hint="--rpc-tracker 127.0.0.1:9190 --rpc-key KEY")


def _option(args: argparse.Namespace) -> MeasureOption:
    timing = {name: getattr(args, name) for name in ("number", "repeat", "min_repeat_ms", "timeout")}
    _check_device(args)
    is_cpu = _target(args).kind.family == "cpu"
    timing |= {"enable_cpu_cache_flush": is_cpu, "cooldown_interval": 0.0}  # as in a network, weights are not at hand
    if args.rpc_key:
        runner: LocalRunner | RPCRunner = RPCRunner(args.rpc_key, *parse_address(args.rpc_tracker, PORT), **timing)
    else:
        runner = LocalRunner(**timing)
    limits = {"timeout": max(60.0, args.timeout), "n_parallel": args.parallel or None}  # numbers
    return measure_option(DaskBuilder(args.cluster, **limits) if args.cluster else LocalBuilder(**limits), runner)


def _tune(
    args: argparse.Namespace, task: Task, prefix: str, option: MeasureOption, until: float, gains: Gains
) -> tuple[Tuner, bool]:
    """Tune a task; the tuner, and whether there were new trials."""
    tuner = make_tuner(args.tuner, task, args.seed)
    tuner.deadline = until
    held = tuner.resume(load_from_file(args.output)) if args.resume and Path(args.output).exists() else 0
    gains(tuner, [inp for inp, _ in tuner.resumed], [result for _, result in tuner.resumed])
    if args.tuning_records:
        tuner.load_history(load_from_file(args.tuning_records))
    trials = min(args.trials, len(task.config_space))
    with shown(trials, prefix, gains) as callback:
        callbacks = [gains, callback, log_to_file(args.output)]
        tuner.tune(trials, option, args.early_stopping or None, callbacks)
    if tuner.trials > held:
        _finals(args, tuner, option, gains)
    return tuner, tuner.trials > held
