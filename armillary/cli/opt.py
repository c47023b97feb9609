"""Run passes on the text of a module.

Reads Relay or TIR text from a file or stdin, runs the named passes in order (or, with --build, all those of a build)
and prints the result. Names: as --list shows them, or those of the Relay era.

examples:
  armc opt model.relay -p fold-constant,fuse-ops
  armc opt model.relay -p FoldConstant,FuseOps --print-after FoldConstant
  armc opt kernel.tir -p unroll-loop --pass-config 'tir.UnrollLoop={"auto_max_step": 16}'
  armc opt model.relay --build --target "llvm -mcpu=znver4" --print-changes
  armc opt model.relay --program
  armc opt model.relay -p fuse-ops --svg fused.svg
  armc opt --list
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
from contextlib import nullcontext

from rich.table import Table

import armillary.relay.transform
import armillary.tir.transform
from armillary.artifact import GraphSpec
from armillary.base.files import check_writable
from armillary.cli._console import errors, output
from armillary.cli.options.models import comma_list, pass_config, read_text, text_name
from armillary.cli.options.passes import add_pass_arguments, pass_context, print_times
from armillary.driver.build import build
from armillary.errors import ConfigError
from armillary.instrument import PassTimingInstrument
from armillary.ir import IRModule
from armillary.program.from_graph import program_of
from armillary.program.text import print_program
from armillary.program.verify import verify
from armillary.relay.parser import parse as parse_relay
from armillary.relay.transform.pipeline import optimize
from armillary.relay.visualization.picture import visualize
from armillary.target import as_target
from armillary.tir.lower import lower_module
from armillary.tir.parser import parse_module as parse_tir
from armillary.tir.stmt import PrimFunc
from armillary.transform import PASSES, Pass, find_pass


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `armc opt`."""
    parser.add_argument("FILE", nargs="?", help="Relay or TIR text; - for stdin")
    parser.add_argument("-p", "--passes", default="", metavar="LIST", help="fold-constant,fuse-ops{fuse-opt-level=1}")
    parser.add_argument("--build", action="store_true", help="run the passes of a build, in its order")
    parser.add_argument("--target", default="", help="for passes that ask for one")
    parser.add_argument(
        "--program", action="store_true", help="print the run program that a build makes of Relay text, verified"
    )
    parser.add_argument("--svg", default="", metavar="FILE", help="draw the graph before and after the passes")
    parser.add_argument("--list", action="store_true", help="list all passes")
    add_pass_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """List passes, or run some."""
    load_passes()
    if args.list:
        output.print(_pass_table())
        return 0
    if args.FILE is None:
        raise ConfigError("name a file, or - for stdin", hint="armc opt model.relay -p fold-constant")
    if args.svg:
        check_writable(args.svg)
    passes = [bound_pass(item, args.target) for item in split_passes(args.passes)]
    before = module = _parse(read_text(args.FILE), text_name(args.FILE))
    timing = PassTimingInstrument()
    with pass_context(args, timing), as_target(args.target) if args.target else nullcontext():
        for item in passes:
            module = item(module)
        if args.build:
            module = _build_passes(module, args.target)
    if args.svg:
        visualize(before, args.svg, after=module)
    print(_program_of(module, args.target) if args.program else module.astext())
    print_times(args, timing)
    return 0


def _build_passes(module: IRModule, target: str) -> IRModule:
    """The graph passes for Relay text, the loop passes for TIR text."""
    if any(isinstance(f, PrimFunc) for _, f in module.items()):
        return lower_module(module, target=target or None)
    return optimize(module, as_target(target or "llvm"))


def _program_of(module: IRModule, target: str) -> str:
    """The text of the program that a build makes of the module."""
    library = build(module, target or "llvm")
    program = program_of(GraphSpec.from_json(library.get_graph_json()), library.get_params())
    verify(program)
    return print_program(program)


def load_passes() -> None:
    """Import every pass, so that all are registered."""
    for package in (armillary.relay.transform, armillary.tir.transform):
        for info in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
            importlib.import_module(info.name)


def split_passes(text: str) -> list[str]:
    """Items between commas that are not inside braces."""
    items, depth, current = [], 0, ""
    for char in text:
        depth += (char == "{") - (char == "}")
        if char == "," and depth == 0:
            items.append(current.strip())
            current = ""
        else:
            current += char
    return [item for item in [*items, current.strip()] if item]


def bound_pass(spec: str, target: str = "") -> Pass:
    """A pass with options, from "fuse-ops{fuse-opt-level=1}"; one that asks for a target gets `target`."""
    name, brace, options = spec.partition("{")
    definition = find_pass(name.strip())
    default = {"target": target} if target and "target" in definition.options else {}
    if not brace:
        return definition.bind(**default)
    if not options.endswith("}"):
        raise ConfigError(f"pass {spec!r}: the closing brace is missing")
    values = pass_config(comma_list(options[:-1]))
    return definition.bind(**{**default, **{key.replace("-", "_"): value for key, value in values.items()}})


def _parse(text: str, source: str) -> IRModule:
    """TIR text begins its functions with `func`; everything else is Relay."""
    first = next((line for line in text.splitlines() if line.strip() and not line.lstrip().startswith(("//", "#"))), "")
    if not first:
        errors.print("the text is empty", highlight=False)
    return parse_tir(text, source) if first.lstrip().startswith("func ") else parse_relay(text, source)


def _pass_table() -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("pass", "Relay-era name", "level", "what it does"):
        table.add_column(heading, no_wrap=heading != "what it does")
    for spec, definition in sorted(PASSES.items()):
        summary = (definition.__doc__ or "").strip().partition("\n")[0]
        options = "{" + ",".join(definition.options) + "}" if definition.options else ""
        row = (spec + options.replace("_", "-"), definition.info.name, str(definition.info.opt_level), summary)
        table.add_row(*row)
    return table
