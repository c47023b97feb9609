"""The options of the command line that say where code is to run: `--target`, `--target-<kind>-<attribute>`.

In: what argparse read. Out: one text that lists the targets: "opencl -device=adreno, llvm -mtriple=aarch64-linux-gnu".
Invariant: an option for a kind that the list does not have is an error that names it. Lists: driver/libraries.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from armillary.errors import ConfigError
from armillary.offload.contract import is_offload
from armillary.target import Target, arm_cpu
from armillary.target.boards import board_options
from armillary.target.kinds import KINDS

_PREFIX = "target_option:"


def add_target_arguments(parser: argparse.ArgumentParser, default: str = "llvm -mcpu=native") -> None:
    """Declare them; attributes are shown by `docs`, not by --help, which would be all of them."""
    told = f'default: "{default}", this CPU; a list such as "opencl, clml, llvm" is a device, libraries and the host'
    parser.add_argument("--target", default=default, help=told)
    for kind in sorted(KINDS):
        for name in sorted({*KINDS[kind].schema, "keys"}):
            option = f"--target-{kind}-{name}"
            parser.add_argument(option, dest=f"{_PREFIX}{kind}:{name}", metavar="VALUE", help=argparse.SUPPRESS)
    # One line of help for all of them.
    shown = parser.add_argument("--target-KIND-ATTRIBUTE", dest=f"{_PREFIX}KIND:", metavar="VALUE")
    shown.help = "an attribute of a target of the list: --target-llvm-mtriple=…, --target-opencl-device=adreno"


def takes_fixed_shapes(targets: str) -> bool:
    """Whether one of a list of targets is a device, or C, whose kernels take no open sizes."""
    return any(part.split()[0] not in ("llvm", "cpu") and not is_offload(part.split()[0]) for part in _parts(targets))


def target_of(args: argparse.Namespace) -> str:
    """The list of targets with the attributes that other options say."""
    given: dict[str, dict[str, str]] = {}
    for key, value in vars(args).items():
        if key.startswith(_PREFIX) and value is not None:
            kind, _, name = key.removeprefix(_PREFIX).partition(":")
            given.setdefault(kind, {})[name] = value
    return with_attributes(str(args.target), given)


def with_attributes(target: str, given: Mapping[str, Mapping[str, str]]) -> str:
    """A list of targets with attributes by kind and name: {"opencl": {"device": "adreno"}}."""
    parts = _parts(target)
    for kind, attributes in given.items():
        found = next((k for k, part in enumerate(parts) if part.split()[0] == kind), -1)
        for name, value in attributes.items():
            if found < 0:
                told = f"--target-{kind}-{name}: the target {target!r} has no {kind}"
                raise ConfigError(told, hint=f'name it in the list: --target "…, {kind}"' if name else "KIND is a kind")
            parts[found] += f" -{name}={value}"
    return ", ".join(parts)


def _parts(text: str) -> list[str]:
    """The targets of a list; a comma inside one, as in -mattr=+a,+b, stays in it."""
    parts: list[str] = []
    for piece in text.split(","):
        word = (piece.split() or [""])[0]
        begins = word in KINDS or is_offload(word)
        if begins or not parts:
            parts.append(piece.strip())
        else:
            parts[-1] += f",{piece}"
    return [part for part in parts if part]


def program_target(text: str) -> Target:
    """What a program is built for: a target string, a triple alone, or a board's name."""
    if board_options(text) is not None:
        return arm_cpu(text)
    is_triple = "-" in text and not text.split()[1:]
    return Target(f"llvm -mtriple={text}" if is_triple else text)
