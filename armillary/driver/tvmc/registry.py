"""Options of the command line for a registry of names with options: `--executor`, `--executor-graph-link-params`.

In: a parser and `relay.backend.Executor` or `Runtime`. Out: the options; what was given as a value of that class.
Invariant: an option of a name that was not chosen is refused.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeVar

from armillary.errors import ConfigError
from armillary.relay.backend import Executor, Runtime

_R = TypeVar("_R", Executor, Runtime)


def _truth(text: str) -> bool:
    if text.lower() not in ("0", "1", "true", "false"):
        raise argparse.ArgumentTypeError(f"got {text!r}, wanted 0 or 1")
    return text.lower() in ("1", "true")


_READERS: dict[str, Callable[[str], bool | int | str]] = {
    "runtime.BoxBool": _truth,
    "runtime.BoxInt": int,
    "runtime.String": str,
}


def generate_registry_args(
    parser: argparse.ArgumentParser, registry: type[Executor] | type[Runtime], default: str | None = None
) -> None:
    """Declare an option for the name, and one for each option of each name."""
    kind = registry.__name__.lower()
    known = registry.list_registered()
    parser.add_argument(f"--{kind}", default=default, help=f"one of {', '.join(known)}")
    for name in known:
        for option, message in registry.list_registered_options(name).items():
            parser.add_argument(f"--{kind}-{name}-{option}", type=_READERS[message], help=f"{option} of {name}")


def reconstruct_registry_entity(args: argparse.Namespace, registry: type[_R]) -> _R | None:
    """What was chosen with its options; None where no name was given. Raises ConfigError for what does not fit."""
    kind = registry.__name__.lower()
    chosen = getattr(args, kind, None)
    if chosen is None:
        return None
    options: dict[str, bool | int | str] = {}
    registry.list_registered_options(chosen)
    for name in registry.list_registered():
        for option in registry.list_registered_options(name):
            value = getattr(args, f"{kind}_{name}_{option}".replace("-", "_"), None)
            if value is None:
                continue
            if name != chosen:
                raise ConfigError(f"Passed --{kind}-{name}-{option} but did not specify {name} {kind}")
            options[option] = value
    return registry(chosen, options)
