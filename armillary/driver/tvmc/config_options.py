"""Options of the command line from a JSON file: `armc compile --config FILE` as `tvmc` has it.

In: a dictionary of a JSON file: `targets`, `executor`, `runtime`, `pass-config`, and options by their names. Out:
dictionaries of one option each, as argparse stores them; the words of a command line. Invariant: both say the same;
what is no text, number or list of such is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from armillary.base.files import read_regular
from armillary.errors import ConfigError, Span

Value = str | list[str]


def read_and_convert_json_into_dict(config_file: str | Path) -> dict[str, object]:
    """The dictionary of a JSON file. Raises ConfigError for a file that is not there or holds something else."""
    try:
        result = json.loads(read_regular(config_file).decode("utf-8"))
    except OSError as error:
        message = f"cannot read the configuration: {error.strerror}"
        raise ConfigError(message, span=Span(str(config_file))) from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the configuration is no JSON: {error}", span=Span(str(config_file))) from None
    if not isinstance(result, dict):
        raise ConfigError("the configuration is no JSON object", span=Span(str(config_file)))
    return result


def convert_config_json_to_cli(json_params: Mapping[str, object]) -> list[dict[str, Value]]:
    """One dictionary for each option: {"target_c_mcpu": "cortex-m55"}, {"target": "llvm, c"}."""
    return [{name: value} for name, _, value in _options(json_params)]


def command_line(json_params: Mapping[str, object]) -> list[str]:
    """The same as words: ["--target-c-mcpu=cortex-m55", "--target=llvm, c"]."""
    rows = [(option, value if isinstance(value, list) else [value]) for _, option, value in _options(json_params)]
    return [f"--{option}={item}" for option, items in rows for item in items]


def _options(settings: Mapping[str, object]) -> Iterator[tuple[str, str, Value]]:
    """As argparse stores it, as it is written, and the value."""
    for key, value in settings.items():
        if key == "targets":
            yield from _targets(value)
        elif key in ("executor", "runtime"):
            options = _object(key, value)
            yield key, key, _text(f"{key}.kind", options.pop("kind", None))
            name = _text(f"{key}.kind", _object(key, value)["kind"])
            for option, setting in options.items():
                written = f"{key}-{name}-{option}"
                yield written.replace("-", "_"), written, _text(written, setting)
        elif key == "pass-config":
            yield "pass_config", key, [f"{k}={_text(f'{key}.{k}', v)}" for k, v in _object(key, value).items()]
        elif isinstance(value, list):
            yield key.replace("-", "_"), key, [_text(key, item) for item in value]
        else:
            yield key.replace("-", "_"), key, _text(key, value)


def _targets(value: object) -> Iterator[tuple[str, str, Value]]:
    if not isinstance(value, list):
        raise ConfigError(f"targets: wanted a list of objects, got {value!r}", hint='[{"kind": "llvm"}]')
    kinds = []
    for entry in value:
        options = _object("targets", entry)
        kind = _text("targets.kind", options.pop("kind", None))
        kinds.append(kind)
        for name, setting in options.items():
            yield f"target_{kind}_{name}", f"target-{kind}-{name}", _text(f"targets.{kind}.{name}", setting)
    yield "target", "target", ", ".join(kinds)


def _object(key: str, value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise ConfigError(f"{key}: wanted an object, got {value!r}", hint='{"kind": "llvm"}')
    return dict(value)


def _text(key: str, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ConfigError(f"{key}: wanted a text or a number, got {value!r}")
    return str(value)
