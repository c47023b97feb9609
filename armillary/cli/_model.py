"""Reading what the command line names: models, shapes, pass options.

In: strings from the user. Out: modules, parameters, dictionaries. Invariant: anything unreadable is an ArmillaryError
that quotes the text and says what form it should have.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from armillary.errors import ConfigError, ModelError, Span
from armillary.frontend.onnx import from_onnx
from armillary.ir import IRModule
from armillary.relay.parser import parse as parse_relay
from armillary.transform import CONFIG_OPTIONS

_SHAPE = re.compile(r"\s*(?P<name>[^\s\[\]]+?)\s*:\s*\[(?P<dims>[-\d,\s]*)\]\s*,?")


def input_shapes(text: str) -> dict[str, tuple[int, ...]]:
    """Shapes by input name, from "data:[1,3,224,224] mask:[1,224]"."""
    shapes: dict[str, tuple[int, ...]] = {}
    position = 0
    while text[position:].strip():
        match = _SHAPE.match(text, position)
        dims = [d.strip() for d in match["dims"].split(",") if d.strip()] if match else []
        if match is None or not all(re.fullmatch(r"\d+", d) for d in dims):
            raise ConfigError(f"--input-shapes: cannot read {text[position:]!r}", hint='write "data:[1,3,224,224]"')
        shapes[match["name"]] = tuple(map(int, dims))
        position = match.end()
    return shapes


def load_model(file: str, shapes: dict[str, tuple[int, ...]] | None = None) -> tuple[IRModule, dict[str, Any]]:
    """A model by its suffix: .onnx, or .relay/.txt for Relay text; "-" reads Relay text from stdin."""
    suffix = Path(file).suffix.lower()
    if suffix == ".onnx":
        return from_onnx(file, shape=shapes)
    if suffix in (".relay", ".txt") or file == "-":
        return parse_relay(read_text(file)), {}
    raise ModelError(
        f"the form of the model is not known from its suffix {suffix!r}", span=Span(file), hint="use .onnx or .relay"
    )


def read_text(file: str) -> str:
    """A text file, or stdin for "-"."""
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
    except OSError as error:
        raise ModelError(f"cannot read the file: {error.strerror}", span=Span(file)) from None
    except UnicodeDecodeError:
        raise ModelError("the file is not text", span=Span(file)) from None


def pass_config(items: Sequence[str]) -> dict[str, Any]:
    """Options for PassContext(config=…) from "name=value" items; values are read by the option's declared type."""
    config: dict[str, Any] = {}
    for item in items:
        name, equals, text = item.partition("=")
        if not equals:
            raise ConfigError(f"--pass-config {item!r}: expected NAME=VALUE")
        option = CONFIG_OPTIONS.get(name)
        config[name] = _value(text, option.type if option else object)
    return config


def _value(text: str, kind: Any) -> Any:  # Any: a type or a tuple of types
    if kind is str:
        return text
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if kind is bool and text in ("0", "1"):
        return text == "1"
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def comma_list(text: str) -> list[str]:
    """Items between commas, without blanks."""
    return [item.strip() for item in text.split(",") if item.strip()]
