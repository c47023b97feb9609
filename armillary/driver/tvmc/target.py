"""Lists of targets as the command line of Relay's time reads them: "opencl -device=mali, llvm -mcpu=cortex-a76".

In: a text, and attributes that other options say, by kind. Out: tokens; entries with a name and its options; a Target
with its host, and the libraries before it. Invariant: a list has one target, or one and its host; a name that is
neither a target nor a library is refused. What libraries are: offload/contract.py.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from typing import TypedDict

from armillary.base.boundary import boundary
from armillary.errors import ConfigError
from armillary.offload.contract import is_offload
from armillary.target import Target
from armillary.target.kinds import KINDS

_QUOTED = r"\"[^\"]*\"|'[^']*'"
_TOKEN = re.compile(rf"--?[\w\-]+(?:=(?:[\w\-.+]*(?:{_QUOTED})|[^\s,\"']+(?:,[^\s,\-\"'][^\s,\"']*)*))?|[\w\-.+]+|,")


class TargetEntry(TypedDict):
    """One target of a list: its name, its options without dashes, its text, and whether it is no library."""

    name: str
    opts: dict[str, str]
    raw: str
    is_tvm_target: bool


def tokenize_target(target: str) -> list[str]:
    """Names, options and commas between targets, in order; a comma in the value of an option is no token."""
    return _TOKEN.findall(target)


@boundary("parse_target")
def parse_target(target: str) -> list[TargetEntry]:
    """The targets of a list. Raises ConfigError for an option without a target."""
    entries: list[TargetEntry] = []
    tokens: list[list[str]] = [[]]
    for token in tokenize_target(target):
        if token == ",":
            tokens.append([])
        else:
            tokens[-1].append(token)
    for words in tokens:
        if not words or words[0].startswith("-"):
            raise ConfigError(f"target {target!r}: a target has no name", hint='"opencl -device=mali, llvm"')
        options: dict[str, str] = {}
        for word in words[1:]:
            name, _, value = word.lstrip("-").partition("=")
            options[name] = value.strip("\"'") if "=" in word else ""
        is_target = not is_offload(words[0])
        entries.append(TargetEntry(name=words[0], opts=options, raw=" ".join(words), is_tvm_target=is_target))
    return entries


@boundary("target_from_cli")
def target_from_cli(
    target: str, additional_target_options: Mapping[str, Mapping[str, object]] | None = None
) -> tuple[Target, list[TargetEntry]]:
    """The target, with its host, and the libraries that come before it.

    Raises ConfigError for a list of no target, of more than two, of one twice, for a name that is none, and for
    attributes of a kind that the list does not have.
    """
    entries = parse_target(target)
    _merge(entries, additional_target_options or {})
    for entry in entries:
        if entry["is_tvm_target"] and entry["name"] not in KINDS:
            hint = f"targets: {', '.join(sorted(KINDS))}"
            raise ConfigError(f"target {target!r}: {entry['name']!r} is neither a target nor a library", hint=hint)
    targets = [entry for entry in entries if entry["is_tvm_target"]]
    names = [entry["name"] for entry in targets]
    if not 1 <= len(names) <= 2 or len(set(names)) < len(names):
        message = f"target {target!r}: wanted one target, or one and its host, got {', '.join(names) or 'none'}"
        raise ConfigError(message, hint='"opencl -device=mali, llvm -mtriple=aarch64-linux-gnu"')
    results = [Target(_text(entry)) for entry in targets]
    libraries = [entry for entry in entries if not entry["is_tvm_target"]]
    return (results[0] if len(results) == 1 else Target(results[0], host=results[1])), libraries


def _merge(entries: Sequence[TargetEntry], cli_options: Mapping[str, Mapping[str, object]]) -> None:
    for kind, options in cli_options.items():
        same_kind = [entry for entry in entries if entry["name"] == kind]
        for name, value in options.items():
            if not same_kind:
                raise ConfigError(f"Passed --target-{kind}-{name} but did not specify {kind} target")
            same_kind[0]["opts"][name] = str(value)


def _text(entry: TargetEntry) -> str:
    return " ".join(
        [entry["name"], *(f"-{name}={value}" if value else f"-{name}" for name, value in entry["opts"].items())]
    )


def generate_target_args(parser: argparse.ArgumentParser) -> None:
    """Declare `--target` and an option for each attribute of each kind: `--target-llvm-mcpu`."""
    parser.add_argument("--target", required=False, help='a target, or a list: "opencl -device=mali, llvm"')
    for kind, name in _attributes():
        parser.add_argument(f"--target-{kind}-{name}", help=f"{name} of the target {kind}")


def reconstruct_target_args(args: argparse.Namespace) -> dict[str, dict[str, str]]:
    """Attributes by kind that were given on the command line."""
    result: dict[str, dict[str, str]] = {}
    for kind, name in _attributes():
        value = getattr(args, f"target_{kind}_{name}".replace("-", "_"), None)
        if value is not None:
            result.setdefault(kind, {})[name] = value
    return result


def _attributes() -> list[tuple[str, str]]:
    return [(kind, name) for kind in sorted(KINDS) for name in sorted({*KINDS[kind].schema, "keys"})]
