"""Run passes on the text of a module.

Reads Relay or TIR text from a file or stdin, runs the named passes in order, and prints the result.

examples:
  armc opt model.relay -p fold-constant,fuse-ops
  armc opt kernel.tir -p tir-unroll-loop
  armc opt --list
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil

from rich.table import Table

import armillary.relay.transform
import armillary.tir.transform
from armillary.cli._console import errors, output
from armillary.cli._model import comma_list, pass_config, read_text
from armillary.errors import ConfigError
from armillary.ir import IRModule
from armillary.relay.parser import parse as parse_relay
from armillary.tir.parser import parse_module as parse_tir
from armillary.transform import PASSES, Pass, PassContext, find_pass


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `armc opt`."""
    parser.add_argument("FILE", nargs="?", help="Relay or TIR text; - for stdin")
    parser.add_argument("-p", "--passes", default="", metavar="LIST", help="fold-constant,fuse-ops{max-depth=8}")
    parser.add_argument("--list", action="store_true", help="list all passes")
    parser.add_argument("--pass-config", action="append", default=[], metavar="NAME=VALUE", help="repeatable")
    parser.add_argument("-O", "--opt-level", type=int, choices=range(5), default=3, help="0 to 4 (default: 3)")


def run(args: argparse.Namespace) -> int:
    """List passes, or run some."""
    load_passes()
    if args.list:
        output.print(_pass_table())
        return 0
    if args.FILE is None:
        raise ConfigError("name a file, or - for stdin", hint="armc opt model.relay -p fold-constant")
    passes = [bound_pass(item) for item in split_passes(args.passes)]
    module = _parse(read_text(args.FILE))
    with PassContext(args.opt_level, config=pass_config(args.pass_config)):
        for item in passes:
            module = item(module)
    print(module.astext())
    return 0


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


def bound_pass(spec: str) -> Pass:
    """A pass with options, from "fuse-ops{max-depth=8,link-params=true}"."""
    name, brace, options = spec.partition("{")
    definition = find_pass(name.strip())
    if not brace:
        return definition.bind()
    if not options.endswith("}"):
        raise ConfigError(f"pass {spec!r}: the closing brace is missing")
    values = pass_config(comma_list(options[:-1]))
    return definition.bind(**{key.replace("-", "_"): value for key, value in values.items()})


def _parse(text: str) -> IRModule:
    """TIR text begins its functions with `func`; everything else is Relay."""
    first = next((line for line in text.splitlines() if line.strip() and not line.lstrip().startswith(("//", "#"))), "")
    if not first:
        errors.print("the text is empty", highlight=False)
    return parse_tir(text) if first.lstrip().startswith("func ") else parse_relay(text)


def _pass_table() -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("pass", "level", "what it does"):
        table.add_column(heading, no_wrap=heading != "what it does")
    for spec, definition in sorted(PASSES.items()):
        summary = (definition.__doc__ or "").strip().partition("\n")[0]
        options = "{" + ",".join(definition.options) + "}" if definition.options else ""
        table.add_row(spec + options.replace("_", "-"), str(definition.info.opt_level), summary)
    return table
