"""The text and dictionary forms of a target.

In: `llvm -mcpu=cortex-a72 --mattr +neon,+crc -fast-math`, JSON of a dictionary, or a dictionary. Out: `(kind, keys,
attributes)`, checked against the kind's schema; and back to text. Invariant: `unparse` of a parsed target parses to the
same target. Every refusal names the attribute and lists the valid ones.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping

from armillary.base.device_types import CODES
from armillary.base.json_types import JsonObject
from armillary.base.lazy import deferred, similar
from armillary.errors import TargetError
from armillary.target.absent import ABSENT
from armillary.target.boards import BOARDS, board_options
from armillary.target.kind import Attribute, TargetKind
from armillary.target.kinds import KINDS
from armillary.target.shorthand import by_word, meant_by

with deferred():
    from armillary.base.functions import is_registered  # numpy, which few targets need
    from armillary.target.tags import tagged

Parsed = tuple[TargetKind, tuple[str, ...], dict[str, Attribute]]
_ARM = ("aarch64", "arm", "thumb")  # how the triples of Arm begin
_CONTROLLERS = "cortex-m"  # named without a triple, as there is no other processor of the name
BUILD = "target.build."  # and a kind: the function that makes code for it
_TRUE, _FALSE = ("1", "true", "True"), ("0", "false", "False")


def find_kind(name: object) -> TargetKind:
    """The kind of this name, or a TargetError listing all of them."""
    if isinstance(name, TargetKind):
        return name
    kind = KINDS.get(name) or ABSENT.get(name) or script_kind(name) if isinstance(name, str) else None
    if kind is None:
        close = similar(str(name), KINDS, 1, 0.5)
        meant = meant_by(str(name)) or (close[0] if close else "")
        hint = (f"did you mean {meant}? " if meant else "") + "kinds: " + ", ".join(sorted(KINDS))
        raise TargetError(f"unknown target kind {name!r}", hint=f"{hint}; boards: {', '.join(sorted(BOARDS))}")
    return kind


def script_kind(name: str) -> TargetKind | None:
    """A kind that a script brought: it registered `target.build.<name>`."""
    if not is_registered(f"{BUILD}{name}"):
        return None
    return TargetKind(name, CODES["ext_dev"], "", "cpu", (name,))  # functions that the host calls, in its memory


def parse_text(text: str) -> JsonObject:  # Any: values are raw strings, lists or nested dictionaries
    """A target string, or the JSON text of a dictionary, as a raw dictionary."""
    stripped = text.strip()
    if stripped.startswith("{"):
        return _parse_json(stripped)
    try:
        tokens = shlex.split(stripped)
    except ValueError as error:
        raise TargetError(f"target {text!r} does not parse: {error}") from None
    if not tokens or tokens[0].startswith("-"):
        raise TargetError(f"target {text!r} does not start with a kind", hint="kinds: " + ", ".join(sorted(KINDS)))
    short = None if tokens[0] in KINDS else by_word(tokens[0])
    if short is not None:
        return {
            **parse_text(short),
            **{key: value for key, value in _read(text, ["llvm", *tokens[1:]]).items() if key != "kind"},
        }
    raw = _read(text, tokens)
    chip = tagged(tokens[0]) if "/" in tokens[0] else None  # vendor/chip
    return (
        raw
        if chip is None
        else {**raw, **{key: raw.get(key, value) for key, value in chip.items() if key != "kind"}, "kind": chip["kind"]}
    )


def _read(text: str, tokens: list[str]) -> JsonObject:
    raw: JsonObject = {"kind": tokens[0]}
    index = 1
    while index < len(tokens):
        index = _option(text, tokens, index, raw)
    return raw


def _option(text: str, tokens: list[str], index: int, raw: JsonObject) -> int:
    """Read `-key=value`, `-key value` or `-flag` at `index` into `raw`; the index after it."""
    token = tokens[index]
    key, equals, value = token.lstrip("-").partition("=")
    if not token.startswith("-") or not key:
        raise TargetError(f"target {text!r}: expected -name=value, got {token!r}", hint="attributes start with a dash")
    index += 1
    if not equals:
        if index < len(tokens) and not tokens[index].startswith("-"):
            value, index = tokens[index], index + 1
        else:
            value = "1"
    if key in raw:
        raise TargetError(f"target {text!r}: attribute {key!r} is given twice")
    raw[key] = value
    return index


def _parse_json(text: str) -> JsonObject:
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TargetError(f"the target's JSON does not parse: {error}") from None
    if not isinstance(raw, dict):
        raise TargetError(f"the target's JSON is {type(raw).__name__}, expected an object with a kind")
    return raw


def check(raw: Mapping[str, object]) -> Parsed:
    """Check a raw dictionary (without "host") against the schema of its kind."""
    if "kind" not in raw:
        raise TargetError("a target needs a kind", hint='for example {"kind": "llvm", "mcpu": "cortex-a72"}')
    kind = find_kind(raw["kind"])
    attributes: dict[str, Attribute] = dict(kind.defaults)
    schema = kind.schema
    for key, value in raw.items():
        if key in ("kind", "keys"):
            continue
        if key not in schema:
            close = similar(str(key), schema, 1, 0.6)
            hint = (f"did you mean -{close[0]}? " if close else "") + "it has: keys, host, " + ", ".join(sorted(schema))
            raise TargetError(f"target kind {kind.name} has no attribute {key!r}", hint=hint)
        attributes[key] = _value(kind, key, schema[key], value)
    user_keys = _strings(raw.get("keys", ()), kind, "keys")
    device = attributes.get("device")
    if kind.family == "cpu":
        _fill_from_board(kind, attributes)
    if kind.family == "cpu" and _is_arm(attributes):
        user_keys = (*(key for key in user_keys if key not in kind.default_keys), "arm_cpu")
    keys = (*user_keys, *((str(device),) if device else ()), *kind.default_keys)
    return kind, tuple(dict.fromkeys(keys)), attributes


def _is_arm(attributes: Mapping[str, Attribute]) -> bool:
    """Whether a target's triple, or its controller, is Arm's."""
    is_controller = str(attributes.get("mcpu", "")).lower().startswith(_CONTROLLERS)
    return is_controller or str(attributes.get("mtriple", "")).lower().startswith(_ARM)


def _fill_from_board(kind: TargetKind, attributes: dict[str, Attribute]) -> None:
    """A device that is a board's name, without a triple: the board's triple, and what else is not stated."""
    device = attributes.get("device")
    options = board_options(device) if isinstance(device, str) and "mtriple" not in attributes else None
    if options is None:
        return
    for key, value in parse_text(f"{kind.name} {options}").items():
        if key in kind.schema:
            attributes.setdefault(key, _value(kind, key, kind.schema[key], value))


def _value(kind: TargetKind, key: str, want: type, value: object) -> Attribute:  # raw text or JSON value
    if want is tuple:
        return _strings(value, kind, key)
    try:
        text = str(value)
    except ValueError:  # a whole number of more digits than Python writes
        raise TargetError(f"target kind {kind.name}: attribute {key!r} has too many digits") from None
    if want is str and isinstance(value, str):
        return text
    if want is bool and (isinstance(value, bool) or text in _TRUE + _FALSE):
        return text in _TRUE
    if want in (int, float) and not isinstance(value, bool):
        try:
            return int(text, 0) if want is int else float(text)
        except ValueError:
            pass
    raise TargetError(f"target kind {kind.name}: attribute {key!r} must be {want.__name__}, got {value!r}")


def _strings(value: object, kind: TargetKind, key: str) -> tuple[str, ...]:  # raw text or JSON value
    if isinstance(value, str):
        return tuple(item for item in value.split(",") if item)
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        return _strings(",".join(value), kind, key)  # as it prints
    raise TargetError(f"target kind {kind.name}: attribute {key!r} must be a list of strings, got {value!r}")


def unparse(kind: TargetKind, keys: tuple[str, ...], attributes: Mapping[str, Attribute]) -> str:
    """The text form: the kind, its keys, then attributes by name; numbers at their default are left out.

    Flags are printed at their default too (-link-params=0), as the tuning logs of these targets have them.
    """
    parts = [kind.name, "-keys=" + ",".join(keys)]
    for key in sorted(attributes):
        value = attributes[key]
        if kind.defaults.get(key) == value and not isinstance(value, bool):
            continue
        plain = str(int(value)) if isinstance(value, bool) else str(value)
        text = ",".join(value) if isinstance(value, tuple) else plain
        parts.append(f"-{key}={_quote(text)}")
    return " ".join(parts)


def _quote(text: str) -> str:
    return shlex.quote(text) if any(c.isspace() or c in "'\"\\" for c in text) else text
