"""The `Target` value: where code is to run.

In: a target string, JSON, dictionary or another Target, and optionally a host. Out: a frozen, hashable value that
prints in the same grammar. Invariant: equal targets print equal text, and `Target(str(t)) == t` for a target without
a host. Derived facts about a CPU: `cpu.py`; the grammar: `grammar.py`.
"""

from __future__ import annotations

import contextvars
import json
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from armillary.base.json_types import JsonObject
from armillary.errors import TargetError, UnsupportedError
from armillary.target import grammar
from armillary.target.boards import BOARDS
from armillary.target.kind import HOSTED_DEFAULTS, UNHEEDED, Attribute, TargetKind
from armillary.target.kinds import KINDS

if TYPE_CHECKING:
    from armillary.target.features import TargetFeatures

T = TypeVar("T")
_MOST_HOSTS = 8
_FEATURES: list[Callable[[Target], TargetFeatures]] = []  # of features.py, which stands above: it knows processors
_STACK: contextvars.ContextVar[tuple[Target, ...]] = contextvars.ContextVar("target", default=())


def register_features(rule: Callable[[Target], TargetFeatures]) -> None:
    """Say what `Target.features` is."""
    _FEATURES[:] = [rule]


class NoTargetError(TargetError, AssertionError):
    """There is no target; scripts of the era expect an AssertionError."""


class Target:
    """A kind with keys and attributes: `Target("llvm -mcpu=cortex-a72 -mtriple=aarch64-linux-gnu")`.

    Plain `llvm` (neither -mtriple nor -mcpu) and `-mcpu=native` mean the CPU we run on, with every feature it has:
    what is built here is meant to run here. For another machine, or for a package that must run on many, say so:
    `-mtriple=…` alone is that architecture's baseline; `-mcpu=x86-64-v3` is a portable level.
    """

    __slots__ = ("_text", "attrs", "host", "keys", "kind")
    kind: TargetKind
    keys: tuple[str, ...]
    attrs: dict[str, Attribute]
    host: Target | None
    _text: str

    def __init__(self, target: object, host: object = None) -> None:  # str, dict, Target
        if isinstance(target, Target):
            parsed, own_host = (target.kind, target.keys, dict(target.attrs)), target.host
        else:
            parsed, own_host = _parse(target)
        host_target = Target(host) if host is not None else None
        if host_target is not None and own_host is not None and host_target != own_host:
            raise TargetError(f"target {target!s} already has the host {own_host}, not {host_target}")
        self._set(*parsed, host_target or own_host)

    def _set(self, kind: TargetKind, keys: tuple[str, ...], attrs: dict[str, Attribute], host: Target | None) -> None:
        deep, outer = 0, host
        while outer is not None and deep <= _MOST_HOSTS:
            deep, outer = deep + 1, outer.host
        _check_hosts(deep)
        text = grammar.unparse(kind, keys, attrs)
        for name, value in (("kind", kind), ("keys", keys), ("attrs", attrs), ("host", host), ("_text", text)):
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise TargetError(f"a target does not change: cannot set {name!r}", hint="make a new Target")

    def __reduce__(self) -> tuple[object, ...]:
        return Target, (self.export(),)

    def export(self) -> JsonObject:
        """The dictionary form: kind, keys, attributes, and the host's if there is one."""
        values = {k: list(v) if isinstance(v, tuple) else v for k, v in self.attrs.items()}
        form: JsonObject = {"kind": self.kind.name, "keys": list(self.keys), **values}
        return form if self.host is None else {**form, "host": self.host.export()}

    def to_json(self) -> str:
        return json.dumps(self.export())

    @staticmethod
    def current(allow_none: bool = True) -> Target | None:
        """The innermost target entered with `with`; None (or an error) when there is none."""
        stack = _STACK.get()
        if stack:
            return stack[-1]
        if not isinstance(allow_none, bool | int):
            raise TargetError(f"Target.current: allow_none is {type(allow_none).__name__}, wanted True or False")
        if allow_none:
            return None
        raise TargetError("there is no current target", hint="write `with armillary.target.Target(...):`")

    @staticmethod
    def list_kinds() -> list[str]:
        """The names of all target kinds."""
        return sorted(KINDS)

    def with_host(self, host: object) -> Target:  # whatever Target accepts
        """The same target with another host."""
        result = Target(self)
        result._set(self.kind, self.keys, dict(self.attrs), None if host is None else Target(host))
        return result

    def __enter__(self) -> Target:
        _STACK.set((*_STACK.get(), self))
        return self

    def __exit__(self, *error: object) -> None:
        _STACK.set(_STACK.get()[:-1])

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Target({self._text!r})" if self.host is None else f"Target({self._text!r}, host={str(self.host)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Target) and self._text == other._text and self.host == other.host

    def __hash__(self) -> int:
        return hash((self._text, self.host))

    def _attr(self, name: str, default: object = None) -> Any:  # Any: the attribute's type is the schema's
        return self.attrs.get(name, default)

    @property
    def mcpu(self) -> str:
        return str(self._attr("mcpu", ""))

    @property
    def mtriple(self) -> str:
        return str(self._attr("mtriple", ""))

    @property
    def mattr(self) -> tuple[str, ...]:
        return tuple(self._attr("mattr", ()))

    @property
    def features(self) -> TargetFeatures:
        """What code for the target may use: `target.features.has_sve`."""
        return _FEATURES[0](self)

    @property
    def model(self) -> str:
        return str(self._attr("model", "unknown"))

    @property
    def arch(self) -> str:
        """The device's architecture, such as "sm_80"."""
        return str(self._attr("arch", ""))

    @property
    def device_name(self) -> str:
        return str(self._attr("device", ""))

    @property
    def libs(self) -> list[str]:
        return list(self._attr("libs", ()))

    @property
    def tag(self) -> str:
        return str(self._attr("tag", ""))

    @property
    def max_num_threads(self) -> int:
        return int(self._attr("max_num_threads", 1))

    @property
    def thread_warp_size(self) -> int:
        return int(self._attr("thread_warp_size", 1))

    @property
    def max_shared_memory_per_block(self) -> int:
        return int(self._attr("max_shared_memory_per_block", 0))

    @property
    def l2_cache_size_bytes(self) -> int:
        return int(self._attr("l2_cache_size_bytes", 0))

    @property
    def max_function_args(self) -> int:
        return int(self._attr("max_function_args", 0))

    @staticmethod
    def canon_target_and_host(
        target: object,
        target_host: object = None,
    ) -> tuple[Target | None, Target | None]:
        """A target with its host, and the host; nothing of nothing."""
        if target is None:
            if target_host is not None:
                raise NoTargetError("Target host is not empty when target is empty.")
            return None, None
        target_and_host = Target(target, target_host)
        return target_and_host, target_and_host.host

    @staticmethod
    def canon_multi_target_and_host(target: object, target_host: object = None) -> list[Target]:
        """One target, a list of them, or a dictionary by device, as a list; each has the host."""
        if target is None:
            raise NoTargetError("wanted a target, a list of them, or a dictionary of them by device")
        if isinstance(target, Mapping) and "kind" not in target:
            targets = list(target.values())
        else:
            targets = list(target) if isinstance(target, list | tuple) else [target]
        return [Target(item, target_host) for item in targets]

    @staticmethod
    def canon_target_map_and_host(
        target_map: Mapping[object, T], target_host: object = None
    ) -> tuple[dict[Target, T], Target | None]:
        """What is kept for each target, by targets that have the host."""
        if not isinstance(target_map, Mapping):
            raise TargetError(f"canon_target_map_and_host: got {type(target_map).__name__}, wanted a dict by targets")
        targets = {Target(key, target_host): value for key, value in target_map.items()}
        return targets, next((key.host for key in targets), None)

    def get_kind_attr(self, attr_name: str) -> None:
        """What TVM's own parts noted of a kind (`RelayToTIR`, `is_external_codegen`…): kinds here have no notes."""
        del attr_name

    def get_target_device_type(self) -> int:
        """The DLPack number of the device this target runs on."""
        return self.kind.device_type


def _check_hosts(deep: int) -> None:
    if deep > _MOST_HOSTS:
        raise TargetError(f"a target has more than {_MOST_HOSTS} hosts, one inside the other", hint="a host has none")


def _parse(target: object) -> tuple[grammar.Parsed, Target | None]:  # what a user handed to Target(...)
    raw = grammar.parse_text(target) if isinstance(target, str) else target
    if not isinstance(raw, Mapping):
        raise TargetError(
            f"cannot make a target from {type(raw).__name__} {raw!r}", hint="give a string like 'llvm' or a dictionary"
        )
    host, deep, inner = raw.get("host"), 0, raw.get("host")
    while isinstance(inner, Mapping) and deep <= _MOST_HOSTS:  # before they are read, one inside the other
        deep, inner = deep + 1, inner.get("host")
    _check_hosts(deep)
    parsed = grammar.check({key: value for key, value in raw.items() if key != "host"})
    return parsed, None if host is None else Target(host)


_FOREIGN_SYSTEMS = {
    "darwin": "macOS",
    "macos": "macOS",
    "-ios": "iOS",
    "windows": "Windows",
    "mingw": "Windows",
    "msvc": "Windows",
    "win32": "Windows",
    "wasm": "WebAssembly",
}


def current_target(allow_none: bool = True) -> Target | None:
    """The innermost `with target:`; None outside of any. TargetError there if `allow_none` is false."""
    return Target.current(allow_none)


def check_attributes(target: Target) -> None:
    """Refuse a target with an attribute that a build would have to ignore."""
    if not target.kind.codegen:
        hint = "kinds that code is generated for: " + ", ".join(sorted(KINDS)) + "; a GPU is reached by opencl"
        raise UnsupportedError(f"nothing here generates code for target kind {target.kind.name}", hint=hint)
    triple = str(target.attrs.get("mtriple", ""))
    system = next((name for word, name in _FOREIGN_SYSTEMS.items() if word in triple), None)
    if system is not None:
        raise UnsupportedError(
            f"target {target}: code for {system} is not supported: objects and libraries are written in the ELF format",
            hint="compile for Linux or Android, for example -mtriple=aarch64-linux-gnu",
        )
    refused = target.kind.refused
    for name in _stated(target):
        if name in refused:
            raise UnsupportedError(
                f"target attribute {name!r} of kind {target.kind.name} is not supported: {refused[name]}",
                hint=f"leave -{name} out of the target",
            )


def warn_of_attributes(target: Target) -> Target:
    """The target; a warning for each word of scripts that changes nothing in a build."""
    for name in _stated(target):
        if name in UNHEEDED:
            warnings.warn(f"target attribute {name!r} has no effect: {UNHEEDED[name]}", stacklevel=4)
    return target


def is_for_system_lib(target: Target, runtime: object = None) -> bool:
    """Whether a build's objects register themselves where they are linked: its host says so, or the runtime's options.

    `runtime` is a relay.backend.Runtime or None.
    """
    options = getattr(runtime, "options", None) or {}
    return bool(host_target(target).attrs.get("system-lib") or options.get("system-lib"))


def links_params(target: Target, executor: object = None) -> bool:
    """Whether a build's parameters become part of its code: its target says so, or the executor's options.

    `executor` is a relay.backend.Executor or None.
    """
    options = getattr(executor, "options", None) or {}
    return bool(target.attrs.get("link-params") or options.get("link-params"))


def _stated(target: Target) -> list[str]:
    """The attributes whose values are not the usual ones."""
    usual = {**HOSTED_DEFAULTS, **target.kind.defaults}
    return [name for name, value in target.attrs.items() if value != usual.get(name)]


def host_target(target: Target) -> Target:
    """The CPU that a target's host code runs on: the target itself, its host, or this machine."""
    return target if target.kind.family == "cpu" else target.host or Target("llvm")


def as_target(value: object) -> Target:  # str, dict, Target
    """`value` itself if it is a Target, else the Target made from it."""
    return value if isinstance(value, Target) else Target(value)


def _device_and_host(text: str) -> tuple[str, str | None]:
    """The two targets of a list; a text with a comma inside one target, as in -mattr=+a,+b, is that target."""
    parts = [part.strip() for part in text.split(",")]
    heads = {*Target.list_kinds(), *BOARDS}
    if any(not part or part.split()[0] not in heads for part in parts):
        return text, None
    hosts = [part for part in parts if Target(part).kind.family == "cpu"]
    devices = [part for part in parts if part not in hosts]
    if len(devices) > 1 or len(hosts) > 1:
        message = f"the targets {text!r} are {len(devices)} devices and {len(hosts)} hosts"
        raise UnsupportedError(message, hint="give one device and its host, as in 'opencl, llvm'")
    return (devices[0], hosts[0] if hosts else None) if devices else (hosts[0], None)


def target_with_host(target: object, host: object = None) -> Target:
    """The given target, else the current one, else this CPU; `host` is added when given.

    A list such as "opencl, llvm -mtriple=…" is a device and the CPU of its host.
    """
    if isinstance(target, str) and "," in target:
        target, listed = _device_and_host(target)
        host = host if host is not None else listed
    chosen = as_target(target if target is not None else Target.current() or "llvm")
    return chosen if host is None else Target(chosen, host=host)
