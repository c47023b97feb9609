"""The options of the command line that convert a graph to other layouts: `--desired-layout`, `--desired-layout-ops`.

In: what argparse read, a module. Out: the module in those layouts; as it is where none is asked for. Invariant:
`armc compile` and `armc tune` convert alike, so records of one fit the other. The conversion: driver/tvmc/transform.py.
"""

from __future__ import annotations

import argparse

from armillary.driver.tvmc.transform import LAYOUT_OPS, convert_graph_layout
from armillary.ir import IRModule


def add_layout_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    layouts = parser.add_argument("--desired-layout", nargs="+", default=[], metavar="LAYOUT")
    layouts.help = "NCHW, or NHWC:HWIO: convert the graph to it, one for all operators or one for each"
    ops = parser.add_argument("--desired-layout-ops", nargs="+", default=LAYOUT_OPS, metavar="OP")
    ops.help = f"operators that get it (default: {' '.join(LAYOUT_OPS)})"


def in_desired_layout(module: IRModule, args: argparse.Namespace) -> IRModule:
    """The module in the layouts that the options ask for."""
    return convert_graph_layout(module, args.desired_layout, args.desired_layout_ops) if args.desired_layout else module
