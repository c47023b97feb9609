"""Reading what the command line names: models, their shapes and layouts, pass options, targets.

In: strings from the user. Out: modules, parameters, dictionaries; of `--target` and `--target-<kind>-<attribute>` one
text that lists the targets: "opencl -device=adreno, llvm -mtriple=aarch64-linux-gnu". Invariant: anything unreadable is
an ArmillaryError that quotes the text and says what form it should have.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from armillary.base.files import MOST_BYTES, read_regular
from armillary.base.lazy import deferred
from armillary.cli._console import note
from armillary.errors import ConfigError, ModelError, Span
from armillary.frontend.formats import MODEL_FILES, format_named, format_of, refuse_file
from armillary.frontend.onnx.entry import from_file
from armillary.ir import IRModule
from armillary.offload.contract import is_offload
from armillary.target import Target, arm_cpu
from armillary.target.boards import board_options
from armillary.target.kinds import KINDS
from armillary.transform import CONFIG_OPTIONS, Pass, find_pass

with deferred():
    from armillary.driver.tvmc import transform
    from armillary.frontend.darknet.entry import from_darknet
    from armillary.frontend.keras.entry import from_keras
    from armillary.frontend.mxnet.entry import from_mxnet
    from armillary.frontend.pytorch.files import from_torch_file
    from armillary.frontend.tensorflow.entry import from_tensorflow
    from armillary.frontend.tflite.entry import from_tflite
    from armillary.relay.parser import parse as parse_relay

Imported = tuple[IRModule, dict[str, Any]]  # Any: numpy arrays
_PREFIX = "target_option:"
_SHAPE = re.compile(r"\s*(?P<name>[^\s\[\]]+?)\s*:\s*\[(?P<dims>[-\d,\s]*)\]\s*,?")


def input_shapes(text: str) -> dict[str, tuple[int, ...]]:
    """Shapes by input name, from "data:[1,3,224,224] mask:[1,224]"."""
    shapes = dimensions(text)
    for name, shape in shapes.items():
        if any(size < 0 for size in shape):
            hint = 'write "data:[1,3,224,224]"'
            raise ConfigError(f"--input-shapes: {name!r} has a dimension that is not known: {list(shape)}", hint=hint)
    return shapes


def dimensions(text: str) -> dict[str, tuple[int, ...]]:
    """Shapes by input name, in which -1 is a dimension that is not known."""
    shapes: dict[str, tuple[int, ...]] = {}
    position = 0
    while text[position:].strip():
        match = _SHAPE.match(text, position)
        dims = [d.strip() for d in match["dims"].split(",") if d.strip()] if match else []
        if match is None or not all(re.fullmatch(r"\d+|-1", d) for d in dims):
            raise ConfigError(f"--input-shapes: cannot read {text[position:]!r}", hint='write "data:[1,3,224,224]"')
        shapes[match["name"]] = tuple(map(int, dims))
        position = match.end()
    return shapes


def variants(text: str) -> list[dict[str, object]] | None:
    """Variants from "x:1x3x224x224;x:4x3x224x224" or "batch=1;batch=4"; None for an empty text."""
    rows = [[item for item in re.split(r"[\s,]+", part) if item] for part in text.split(";") if part.strip()]
    return [dict(map(_variant_item, row)) for row in rows] or None


def _variant_item(item: str) -> tuple[str, object]:
    match = re.fullmatch(r"(?P<name>.+?)(?:=(?P<size>\d+)|:(?P<shape>\d+(?:x\d+)*))", item)
    if match is None:
        raise ConfigError(
            f"--variants: cannot read {item!r}", hint='write "x:1x3x224x224;x:4x3x224x224" or "batch=1;batch=4"'
        )
    return match["name"], int(match["size"]) if match["size"] else tuple(map(int, match["shape"].split("x")))


def load_model(
    file: str,
    shapes: dict[str, tuple[int, ...]] | None = None,
    many: list[dict[str, object]] | None = None,
    assume: bool = False,
    form: str = "",
) -> Imported:
    """A model by the suffix of its file (frontend/formats.py); `form` names its form where that does not tell.

    A folder is a SavedModel of TensorFlow, "-" is Relay text from stdin. With `assume`, open dimensions of an ONNX
    model get usual numbers, which a note tells.
    """
    is_saved_model = (Path(file) / "saved_model.pb").is_file()
    if file != "-" and not is_saved_model and not Path(file).is_file():
        raise ModelError(f"Input file '{file}' doesn't exist, is a broken symbolic link, or a directory.")
    if form:
        name = format_named(form).name
    elif file == "-" or is_saved_model:
        name = "relay" if file == "-" else "pb"
    else:
        name = _form_of(file)
    if name == "onnx":
        return from_file(file, shapes, many, note if assume else None)
    if many:
        raise ConfigError("--variants is for ONNX models", hint="in Relay text, mark further functions Variant=1")
    if name == "relay":
        module: IRModule = parse_relay(read_text(file), text_name(file))
        return module, {}
    if name == "keras":
        return from_keras(file, shapes, "NHWC")
    if name == "pb":
        return from_tensorflow(file, shape=shapes)
    if name == "darknet":  # the network of weights lies beside them
        return from_darknet(str(Path(file).with_suffix(".cfg")) if Path(file).suffix == ".weights" else file, shapes)
    readers: dict[str, Callable[..., Imported]] = {
        "mxnet": from_mxnet,
        "pytorch": from_torch_file,
        "tflite": from_tflite,
    }
    return readers[name](file, shapes)


def _form_of(file: str) -> str:
    """The name of a file's form, by its suffix; an error that says what to do where no importer reads such files."""
    form = format_of(file)
    if form is None:
        refuse_file(file)
        message = f"the form of the model is not known from its suffix {Path(file).suffix.lower()!r}"
        raise ModelError(message, span=Span(file), hint=MODEL_FILES)
    return form.name


def text_name(file: str) -> str:
    """How messages name a text file."""
    return "<stdin>" if file == "-" else file


def read_text(file: str) -> str:
    """A text file, or stdin for "-"."""
    try:
        if file != "-":
            return read_regular(file).decode("utf-8")
        text = sys.stdin.read(MOST_BYTES + 1)
    except OSError as error:
        raise ModelError(f"cannot read the file: {error.strerror}", span=Span(file)) from None
    except UnicodeDecodeError:
        raise ModelError("the file is not text", span=Span(file)) from None
    if len(text) > MOST_BYTES:
        raise ModelError(f"the text is too large: at most {MOST_BYTES} characters are read", span=Span("<stdin>"))
    return text


def pass_config(items: Sequence[str]) -> dict[str, object]:
    """Options for PassContext(config=…) from "name=value" items; values are read by the option's declared type."""
    config = {}
    for item in items:
        name, equals, text = item.partition("=")
        if not equals:
            raise ConfigError(f"--pass-config {item!r}: expected NAME=VALUE")
        option = CONFIG_OPTIONS.get(name)
        config[name] = _lower_passes(text) if name == _ADD else _value(text, option.type if option else object)
    return config


_ADD = "tir.add_lower_pass"


def _lower_passes(text: str) -> list[tuple[int, Any]]:  # Any: a Pass
    """Loop passes by phase, from "1,tir.UnrollLoop,3,tir.transform.Simplify,2,package.module.name"."""
    items = comma_list(text)
    pairs = list(zip(items[::2], items[1::2], strict=False))
    if len(items) % 2 or not all(phase.isdigit() for phase, _ in pairs):
        raise ConfigError(f"{_ADD}={text}: expected phases and passes in turn", hint=f"{_ADD}=1,tir.UnrollLoop")
    return [(int(phase), _lower_pass(name)) for phase, name in pairs]


def _lower_pass(name: str) -> Any:  # Any: a Pass
    """A pass by its name, with `.transform.` or without, or what a module of the user's holds."""
    short = name.replace("tir.transform.", "tir.")
    module, _, attribute = name.rpartition(".")
    if module in ("", "tir", "tir.transform"):
        return find_pass(short).bind()
    result = getattr(importlib.import_module(module), attribute, None)
    if result is None:
        raise ConfigError(f"{_ADD}: the module {module} has no {attribute!r}")
    return result if isinstance(result, Pass) else result()


def _value(text: str, kind: object) -> object:  # a type or a tuple of types
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


def count(text: str, least: int = 0) -> int:
    """A whole number of an option, for argparse."""
    if not text.strip().isdigit() or int(text) < least:
        raise argparse.ArgumentTypeError(f"got {text!r}, wanted a whole number that is at least {least}")
    return int(text)


def positive(text: str) -> int:
    """A whole number from 1 on."""
    return count(text, 1)


def fraction(text: str) -> float:
    """A number from 0 on: a tolerance, a time."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"got {text!r}, wanted a number that is at least 0")
    return value


def comma_list(text: str) -> list[str]:
    """Items between commas, without blanks."""
    return [item.strip() for item in text.split(",") if item.strip()]


def add_layout_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options that convert a graph to other layouts."""
    layouts = parser.add_argument("--desired-layout", nargs="+", default=[], metavar="LAYOUT")
    layouts.help = "NCHW, or NHWC:HWIO: convert the graph to it, one for all operators or one for each"
    ops = parser.add_argument("--desired-layout-ops", nargs="+", default=transform.LAYOUT_OPS, metavar="OP")
    ops.help = f"operators that get it (default: {' '.join(transform.LAYOUT_OPS)})"


def in_desired_layout(module: IRModule, args: argparse.Namespace) -> IRModule:
    """The module in the layouts that the options ask for."""
    if not args.desired_layout:
        return module
    return transform.convert_graph_layout(module, args.desired_layout, args.desired_layout_ops)


def add_target_arguments(parser: argparse.ArgumentParser, default: str = "llvm -mcpu=native") -> None:
    """Declare them; attributes are shown by `docs`, not by --help, which would be all of them."""
    message = f'default: "{default}", this CPU; a list such as "opencl, clml, llvm" is a device, libraries and the host'
    parser.add_argument("--target", default=default, help=message)
    for kind in sorted(KINDS):
        for name in sorted({*KINDS[kind].schema, "keys"}):
            option = f"--target-{kind}-{name}"
            parser.add_argument(option, dest=f"{_PREFIX}{kind}:{name}", metavar="VALUE", help=argparse.SUPPRESS)
    # One line of help for all of them.
    shown = parser.add_argument("--target-KIND-ATTRIBUTE", dest=f"{_PREFIX}KIND:", metavar="VALUE")
    shown.help = "an attribute of a target of the list: --target-llvm-mtriple=…, --target-opencl-device=adreno"


def takes_fixed_shapes(targets: str) -> bool:
    """Whether one of a list of targets is C, a device with textures, or one of several, where no size stays open."""
    kinds = [part.split() for part in _parts(targets) if not is_offload(part.split()[0])]
    if len(kinds) == 1 and kinds[0][0] == "opencl":
        return "-device=adreno" in kinds[0]
    return any(words[0] not in ("llvm", "cpu") for words in kinds)


def target_of(args: argparse.Namespace) -> str:
    """The list of targets with the attributes that other options say."""
    attributes: dict[str, dict[str, str]] = {}
    for key, value in vars(args).items():
        if key.startswith(_PREFIX) and value is not None:
            kind, _, name = key.removeprefix(_PREFIX).partition(":")
            attributes.setdefault(kind, {})[name] = value
    return with_attributes(str(args.target), attributes)


def with_attributes(target: str, options: Mapping[str, Mapping[str, str]]) -> str:
    """A list of targets with attributes by kind and name: {"opencl": {"device": "adreno"}}."""
    parts = _parts(target)
    for kind, attributes in options.items():
        place = next((k for k, part in enumerate(parts) if part.split()[0] == kind), -1)
        for name, value in attributes.items():
            if place < 0:
                message = f"--target-{kind}-{name}: the target {target!r} has no {kind}"
                raise ConfigError(
                    message, hint=f'name it in the list: --target "…, {kind}"' if name else "KIND is a kind"
                )
            parts[place] += f" -{name}={value}"
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
