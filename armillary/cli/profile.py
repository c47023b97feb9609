"""Show where an inference spends its time, and why each kernel is computed as it is.

Takes a model (.onnx, .relay), which is compiled first, or a package (.so, .tar) that `armc compile` wrote. For each
kernel: time (median of --runs), share, how much of their time the threads wait in it, GFLOP/s, GB/s, percent of this
machine's roof (the least time that its measured arithmetic and bandwidth allow), algorithm, register tile. --why adds
the reasons of the cost model; --html writes a page with a bar chart and a timeline of the threads, --json the figures.
Winograd kernels count the operations they do, kernels in a loop all its iterations. A network for a device (target
opencl) runs on --device: times are those of the device's own clock, the roof is the device's, and each kernel's tensors
are listed with the memory (buffer, texture) and layout they are in.

examples:
  armc profile resnet18.onnx
  armc profile resnet18.so --threads 2 --top 10 --why
  armc profile model.onnx --target "opencl -device=adreno"
  armc profile model.onnx --input-shapes "data:[1,3,224,224]" --html profile.html --json profile.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from armillary.base.files import check_writable, write_atomic
from armillary.cli._console import errors, output, stages
from armillary.cli.options.models import count, input_shapes, load_model, pass_config, positive, takes_fixed_shapes
from armillary.cli.options.sizes import add_sizes_argument, one_size_each
from armillary.cli.pages.profile import page, tail
from armillary.cli.pages.profile_device import device_page, roof_text
from armillary.cli.run import chosen_device, fill_inputs, read_npz
from armillary.contrib.graph_executor import GraphModule
from armillary.driver.build import build
from armillary.driver.devices.device_profile import DeviceKernel, DeviceProfile, has_textures, profile_device
from armillary.driver.devices.device_roof import measured_device_roof
from armillary.driver.profile import KernelProfile, Profile, percent_of_roof, profile_graph, slowest_first
from armillary.driver.roof import measured_roof
from armillary.errors import ArtifactError, Span
from armillary.runtime import Device, cpu, device, load_module
from armillary.runtime.threads import config_threadpool
from armillary.transform import MAX_LEVEL, PassContext

PACKAGES = (".so", ".tar")
NAME = 36  # letters of a kernel's name in the table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `armc profile`."""
    parser.add_argument("FILE", help="a model (.onnx, .relay) or a package (.so, .tar)")
    parser.add_argument("--threads", type=count, default=0, help="threads of an inference (default: as the runtime)")
    parser.add_argument("--runs", type=positive, default=20, help="runs to take the median of (default: 20)")
    parser.add_argument("-i", "--inputs", metavar="NPZ", help="input arrays by name; others are random")
    add_sizes_argument(parser)
    parser.add_argument("--top", type=count, default=0, metavar="N", help="only the N slowest kernels; 0: all")
    parser.add_argument("--why", action="store_true", help="print the reasons for each kernel")
    parser.add_argument("--html", metavar="FILE", help="write a page with charts")
    parser.add_argument("--json", metavar="FILE", help="write the figures")
    parser.add_argument("--measure-roof", action="store_true", help="measure this machine again")
    parser.add_argument("--target", default="llvm -mcpu=native", help="of a model (default: llvm -mcpu=native)")
    parser.add_argument("--device", default="", help="where to run (default: the first of the kind compiled for)")
    parser.add_argument(
        "-O",
        "--opt-level",
        type=int,
        choices=range(MAX_LEVEL + 1),
        default=3,
        metavar="LEVEL",
        help=f"of a model: 0 to {MAX_LEVEL} (default: 3)",
    )
    parser.add_argument("--input-shapes", default="", metavar="SHAPES", help='of a model: "data:[1,3,224,224]"')
    parser.add_argument("--pass-config", action="append", default=[], metavar="NAME=VALUE", help="of a model")


def run(args: argparse.Namespace) -> int:
    """Load or compile, run, report."""
    for output_file in filter(None, (args.json, args.html)):
        check_writable(output_file)
    if args.threads:
        config_threadpool(0, args.threads)
    with stages() as progress:
        progress.start("loading")
        executor, graph_json = _load(args, progress.advance)
        module = GraphModule(executor)
        inputs = read_npz(args.inputs) if args.inputs else {}
        for name, value in fill_inputs(module, inputs, "random", one_size_each(args.sizes)).items():
            module.set_input(name, value)
        if executor.device != cpu(0):
            progress.start("measuring the device")
            textures = has_textures(graph_json)
            device_roof = measured_device_roof(executor.device, textures=textures, again=args.measure_roof)
            progress.start("running")
            return _report_device(args, profile_device(executor, graph_json, device_roof, args.runs))
        progress.start("measuring this machine")
        roof = measured_roof(again=args.measure_roof)
        progress.start("running")
        profile = profile_graph(executor, graph_json, roof, args.runs)
        if profile.is_above_roof:  # the machine was busy when it was measured
            progress.start("measuring this machine again")
            profile = profile.under(measured_roof(again=True))
    chosen = slowest_first(profile.kernels)[: args.top or None]
    output.print(table(profile, chosen))
    output.print(summary(profile), highlight=False)
    if args.why:
        for kernel in chosen:
            output.print("\n".join(why(kernel)), markup=False, highlight=False)
    if args.json:
        write_atomic(args.json, (json.dumps(profile.to_plain(), indent=1) + "\n").encode())
    if args.html:
        text = page(profile, Path(args.FILE).name, [short_name(k) for k in profile.kernels])
        write_atomic(args.html, text.encode("utf-8", "replace"))
        errors.print(f"{args.html}: written", highlight=False)
    return 0


def _load(args: argparse.Namespace, progress: Any) -> tuple[Any, str]:  # Any: a progress callback; an executor
    path = Path(args.FILE)
    if path.suffix in PACKAGES:
        package = load_module(path)
        if package.graph_json is None:
            raise ArtifactError("the library holds functions but no network", span=Span(str(path)))
        return package["default"](_device(args, package)), package.graph_json
    module, params = load_model(args.FILE, input_shapes(args.input_shapes), assume=takes_fixed_shapes(args.target))
    with PassContext(args.opt_level, config=pass_config(args.pass_config)):
        library = build(module, target=args.target, params=params, progress=progress)
    return library["default"](_device(args, library.get_lib())), library.get_graph_json()


def _device(args: argparse.Namespace, module: Any) -> Device:  # Any: a package or a library
    """The device asked for, or the first one of the kind that has kernels in the package."""
    if args.device:
        return chosen_device(args.device)
    return next((device(m.type_key) for m in module.imported_modules if m.type_key == "opencl"), cpu(0))


def _report_device(args: argparse.Namespace, profile: DeviceProfile) -> int:
    """Kernels of a device as a table, as JSON, as a page."""
    kernels = sorted(profile.kernels, key=lambda k: (-k.seconds, k.index))[: args.top or None]
    output.print(device_table(profile, kernels))
    whole, inside = 1e3 * profile.seconds, 1e3 * profile.in_kernels
    message = f"inference {whole:.3f} ms, its kernels {inside:.3f} ms (medians of {profile.runs} runs)"
    output.print(f"{message}; {profile.percent:.0f} % of the roof reached\n{roof_text(profile.roof)}", highlight=False)
    if args.json:
        write_atomic(args.json, (json.dumps(profile.to_plain(), indent=1) + "\n").encode())
    if args.html:
        text = device_page(profile, Path(args.FILE).name, [short_name(k) for k in profile.kernels])
        write_atomic(args.html, text.encode("utf-8", "replace"))
        errors.print(f"{args.html}: written", highlight=False)
    return 0


def device_table(profile: DeviceProfile, kernels: Sequence[DeviceKernel]) -> Table:
    """The kernels as rows; what lies in which memory comes last."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("#", "kernel", "ms", "share", "GFLOP/s", "GB/s", "% roof", "bound", "tensors"):
        words = heading in ("kernel", "bound", "tensors")
        shown.add_column(heading, justify="left" if words else "right", no_wrap=True)
    for k in kernels:
        share = f"{100 * k.seconds / (profile.in_kernels or 1.0):.1f} %"
        name, message = escape(tail(short_name(k), NAME)), ", ".join(k.tensors)
        figures = f"{1e3 * k.seconds:.4f}", share, f"{k.gflops:.1f}", f"{k.gbytes:.1f}", f"{k.percent:.0f}"
        shown.add_row(str(k.index), name, *figures, k.bound, message)
    return shown


def table(profile: Profile, kernels: list[KernelProfile]) -> Table:
    """The kernels as rows, as they are given."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("#", "kernel"):
        shown.add_column(heading, justify="right" if heading == "#" else "left", no_wrap=True)
    waits = ("waits",) if profile.threads > 1 else ()
    for heading in ("ms", "share", *waits, "GFLOP/s", "GB/s", "% roof"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for heading in ("bound", "algorithm", "tile"):
        shown.add_column(heading, no_wrap=True)
    total = profile.in_kernels or 1.0
    for k in kernels:
        shown.add_row(
            str(k.index),
            escape(tail(short_name(k), NAME)),
            milliseconds(k.seconds, profile),
            f"{100 * k.seconds / total:.1f} %",
            *(f"{k.waiting:.0f} %" for _ in waits),
            f"{k.gflops:.1f}" if k.flops else "",
            f"{k.gbytes:.1f}",
            f"{k.percent:.0f}",
            k.bound,
            k.algorithm,
            k.tile,
        )
    return shown


def milliseconds(seconds: float, profile: Profile) -> str:
    """With more digits for networks that take less than one."""
    return f"{1e3 * seconds:.{3 if profile.in_kernels > 1e-3 else 5}f}"


def short_name(kernel: KernelProfile | DeviceKernel) -> str:
    """The model's name of the node if it has one, else the operators; in a loop, with the number of calls."""
    calls = kernel.share.calls if isinstance(kernel, KernelProfile) else 1
    name, times = kernel.name.rpartition("#")[0], f" ×{calls}" if calls > 1 else ""
    if name and name != "node":
        return name + times
    words = kernel.function.removeprefix("fused_").rpartition("_")[0] or kernel.function
    return words.replace("nn_contrib_", "").replace("nn_", "").replace("cpu_", "") + times


def summary(profile: Profile) -> str:
    """The whole inference, where the time of its threads goes, and the machine."""
    roof, parts = profile.roof, profile.division()
    total = sum(seconds for _, seconds in parts) or 1.0
    ms = partial(milliseconds, profile=profile)
    division = "of it " + ", ".join(f"{name} {ms(s)} ms ({100 * s / total:.1f} %)" for name, s in parts)
    if profile.is_disturbed:
        rest = f"{ms(profile.disturbance)} ms of an inference are in neither: " if profile.disturbance else ""
        division += f"\n{rest}other programs took processor time meanwhile: times are longer than they need be"
    whole = (
        f"inference {ms(profile.seconds)} ms, its kernels {ms(profile.in_kernels)} ms (medians of "
        f"{profile.runs} runs); roof {ms(profile.least)} ms: {percent_of_roof(profile):.0f} % reached"
    )
    apart = ", ".join(f"{ms(s)} {name}" for name, s in profile.apart())
    apart = f"it and its kernels differ by {ms(profile.seconds - profile.in_kernels)} ms: {apart}"
    machine = (
        f"{roof.cpu}, {roof.threads} thread{'s' * (roof.threads > 1)}: {roof.gflops:.0f} GFLOP/s, reads "
        f"L1 {roof.l1:.0f}, L2 {roof.l2:.0f}, L3 {roof.l3:.0f}, memory {roof.memory:.0f} GB/s"
    )
    return f"{whole}\n{apart}\n{division}\n{machine}"


def why(kernel: KernelProfile) -> list[str]:
    """The reasons for one kernel, indented under its name."""
    return [f"#{kernel.index} {short_name(kernel)}", *(f"    {text}" for text in kernel.reasons())]
