"""Passes over modules: definitions, sequences, and the context that switches, configures and watches them.

In: a function `module -> module` decorated with `@define_pass("fold-constant", opt_level=2)`. Out: a `PassDefinition`,
which is still callable on a module, and gives `Pass` objects with bound options for `Sequential` and user scripts.
Invariant: a pass returns its input unchanged when there is nothing to do; every run goes through `Pass.__call__`, which
applies the current `PassContext` (opt level, required and disabled lists, instruments, config).
The order of the build's passes lives in `relay/transform/pipeline.py` and `tir/lower.py`, nowhere else.
"""

from __future__ import annotations

import contextvars
import dataclasses
import difflib
import inspect
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from armillary.errors import ArmillaryError, ConfigError
from armillary.ir import IRModule
from armillary.lazy import find

PassFunction = Callable[..., IRModule]
PASSES: dict[str, PassDefinition] = {}  # by kebab-case spec name


@dataclasses.dataclass(frozen=True)
class ConfigOption:
    """One key of PassContext(config=…): its type, default and meaning."""

    name: str
    type: type | tuple[type, ...]
    default: Any
    doc: str


CONFIG_OPTIONS: dict[str, ConfigOption] = {}
_PASS_PACKAGES = ("armillary.relay.transform", "armillary.tir.lower")  # imported when a name is not known yet


def register_config_option(name: str, kind: type | tuple[type, ...], default: Any, doc: str) -> ConfigOption:
    """Declare a configuration key. Called at import by the module that reads the key."""
    option = ConfigOption(name, kind, default, doc)
    CONFIG_OPTIONS[name] = option
    return option


class PassInstrument:
    """Watches passes. Override any hook; `should_run` False skips a pass that is not required."""

    def enter_pass_ctx(self) -> None:
        """The context is entered."""

    def exit_pass_ctx(self) -> None:
        """The context is left."""

    def should_run(self, module: IRModule, info: PassInfo) -> bool:
        return True

    def run_before_pass(self, module: IRModule, info: PassInfo) -> None:
        """About to run a pass."""

    def run_after_pass(self, module: IRModule, info: PassInfo) -> None:
        """A pass has run; `module` is its result."""


@dataclasses.dataclass(frozen=True)
class PassInfo:
    """A pass's Relay-era name (CamelCase, as in disabled_pass lists), spec name (kebab-case) and minimum opt level."""

    name: str
    spec: str
    opt_level: int
    required: tuple[str, ...] = ()


class PassContext:
    """Options in force for the passes run inside a `with` block. The default, outside any block, is opt_level 2.

    Raises ConfigError for an unknown config key (naming the close ones) or a value of the wrong type.
    """

    def __init__(
        self,
        opt_level: int = 2,
        required_pass: Sequence[str] | None = None,
        disabled_pass: Sequence[str] | None = None,
        instruments: Sequence[PassInstrument] | None = None,
        config: dict[str, Any] | None = None,
    ) -> None:
        self.opt_level = opt_level
        self.required_pass = tuple(required_pass or ())
        self.disabled_pass = tuple(disabled_pass or ())
        self.instruments = tuple(instruments or ())
        self.config = {key: _checked(key, value) for key, value in (config or {}).items()}
        self._tokens: list[contextvars.Token[PassContext | None]] = []

    @staticmethod
    def current() -> PassContext:
        """The innermost context in force."""
        return _CURRENT.get() or _DEFAULT

    def get(self, option: ConfigOption) -> Any:  # Any: the option's own type
        """The value of a configuration key in this context."""
        return self.config.get(option.name, option.default)

    def pass_enabled(self, info: PassInfo) -> bool:
        """Disabled list, then required list, then the opt level."""
        if info.name in self.disabled_pass or info.spec in self.disabled_pass:
            return False
        if info.name in self.required_pass or info.spec in self.required_pass:
            return True
        return self.opt_level >= info.opt_level

    def __enter__(self) -> PassContext:
        self._tokens.append(_CURRENT.set(self))
        for instrument in self.instruments:
            instrument.enter_pass_ctx()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for instrument in self.instruments:
            instrument.exit_pass_ctx()
        _CURRENT.reset(self._tokens.pop())


def _load_passes() -> None:
    """Import every pass: each registers itself and its options."""
    for place in _PASS_PACKAGES:
        find(place)


def _checked(key: str, value: Any) -> Any:
    if key not in CONFIG_OPTIONS:
        _load_passes()
    option = CONFIG_OPTIONS.get(key)
    if option is None:
        close = difflib.get_close_matches(key, CONFIG_OPTIONS, 3, 0.5)
        raise ConfigError(
            f"unknown pass configuration key {key!r}",
            hint=("did you mean " + " or ".join(close) + "? " if close else "")
            + "known keys: " + ", ".join(sorted(CONFIG_OPTIONS)),
        )  # fmt: skip
    if not isinstance(value, option.type) or (option.type is int and isinstance(value, bool)):
        kinds = option.type if isinstance(option.type, tuple) else (option.type,)
        wanted = " or ".join(k.__name__ for k in kinds)
        raise ConfigError(f"{key}: expected {wanted}, got {type(value).__name__} {value!r}")
    return value


_CURRENT: contextvars.ContextVar[PassContext | None] = contextvars.ContextVar("pass_context", default=None)
_DEFAULT = PassContext()


class Pass:
    """A pass with its options bound: call it on a module."""

    def __init__(self, function: Callable[[IRModule], IRModule], info: PassInfo) -> None:
        self.function, self.info = function, info

    @property
    def name(self) -> str:
        return self.info.name

    def __call__(self, module: IRModule) -> IRModule:
        """Run on `module` if an instrument does not object; errors gain a note naming the pass."""
        context = PassContext.current()
        required = self.info.name in context.required_pass
        if not required and not all(i.should_run(module, self.info) for i in context.instruments):
            return module
        for instrument in context.instruments:
            instrument.run_before_pass(module, self.info)
        try:
            result = self.function(module)
        except Exception as error:
            if not isinstance(error, ArmillaryError):
                _add_note(error, f"while running pass {self.info.name} ({self.info.spec})")
            raise
        for instrument in context.instruments:
            instrument.run_after_pass(result, self.info)
        return result

    def __repr__(self) -> str:
        return f"Pass({self.info.name}, opt_level={self.info.opt_level})"


def _add_note(error: Exception, text: str) -> None:
    if hasattr(error, "add_note"):  # Python 3.11
        error.add_note(text)


class Sequential(Pass):
    """Passes in order; each runs only if the current context enables it."""

    def __init__(self, passes: Sequence[Pass], name: str = "sequential", opt_level: int = 0) -> None:
        super().__init__(self._run, PassInfo(name, name, opt_level))
        self.passes = list(passes)

    def _run(self, module: IRModule) -> IRModule:
        for item in self.passes:
            if PassContext.current().pass_enabled(item.info):
                module = item(module)
        return module

    def __call__(self, module: IRModule) -> IRModule:
        return self._run(module)


class PassDefinition:
    """A registered pass: callable on a module, or with options alone to get a `Pass`."""

    def __init__(self, function: PassFunction, info: PassInfo) -> None:
        self.function, self.info = function, info
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        self.__wrapped__ = function
        parameters = list(inspect.signature(function).parameters.values())[1:]
        self.options = {p.name: p.default for p in parameters}

    def __call__(self, module: IRModule, **options: Any) -> IRModule:
        return self.bind(**options)(module)

    def bind(self, *args: Any, **options: Any) -> Pass:
        """A Pass with these options (by position in the order of the function's signature, or by name)."""
        options.update(zip(self.options, args, strict=False))
        unknown = [name for name in options if name not in self.options]
        if unknown or len(args) > len(self.options):
            have = ", ".join(self.options) or "none"
            raise ConfigError(f"pass {self.info.spec}: unknown option {unknown or list(args)}", hint=f"it has: {have}")
        function = self.function
        return Pass(lambda module: function(module, **options), self.info)


def define_pass(
    spec: str, *, opt_level: int = 0, name: str = "", required: Sequence[str] = ()
) -> Callable[[PassFunction], PassDefinition]:
    """Decorator: register `function(module, *, options…) -> module` under a kebab-case name.

    The Relay-era name is the CamelCase form unless `name` gives it (tir passes: "tir.UnrollLoop").
    """
    camel = name or "".join(word.capitalize() for word in spec.split("-"))

    def register(function: PassFunction) -> PassDefinition:
        definition = PassDefinition(function, PassInfo(camel, spec, opt_level, tuple(required)))
        PASSES[spec] = definition
        return definition

    return register


def find_pass(name: str) -> PassDefinition:
    """A registered pass by spec name or Relay-era name."""
    if name not in PASSES:
        _load_passes()
    named = (p for p in PASSES.values() if name in (p.info.name, p.info.name.split(".")[-1]))
    found = PASSES.get(name) or next(named, None)
    if found is None:
        close = difflib.get_close_matches(name, list(PASSES), 3, 0.4)
        similar = f"similar: {', '.join(close)}; " if close else ""
        raise ConfigError(f"there is no pass {name!r}", hint=f"{similar}list them with: armc opt --list")
    return found


def module_pass(
    function: Any = None, opt_level: int = 0, name: str = "", required: Sequence[str] = ()
) -> Any:  # Any: a Pass, or a decorator giving one, as Relay-era scripts expect
    """Decorator for user passes: `f(module, context) -> module` becomes a Pass."""

    def wrap(user: Callable[[IRModule, PassContext], IRModule]) -> Pass:
        label = name or user.__name__
        info = PassInfo(label, label, opt_level, tuple(required))
        return Pass(lambda module: user(module, PassContext.current()), info)

    return wrap(function) if function is not None else wrap


def function_pass(function: Any = None, opt_level: int = 0, name: str = "", required: Sequence[str] = ()) -> Any:
    """Decorator for user passes over one function: `f(function, module, context) -> function` becomes a Pass."""

    def wrap(user: Callable[[Any, IRModule, PassContext], Any]) -> Pass:
        def run(module: IRModule, context: PassContext) -> IRModule:
            return module.map_functions(lambda _, f: user(f, module, context))

        made: Pass = module_pass(run, opt_level, name or user.__name__, required)
        return made

    return wrap(function) if function is not None else wrap


class PassTimingInstrument(PassInstrument):
    """Measures each pass; `render()` gives a table, slowest first."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._starts: list[float] = []

    def run_before_pass(self, module: IRModule, info: PassInfo) -> None:
        self._starts.append(time.perf_counter())

    def run_after_pass(self, module: IRModule, info: PassInfo) -> None:
        self.seconds[info.name] = self.seconds.get(info.name, 0.0) + time.perf_counter() - self._starts.pop()

    def render(self) -> str:
        total = sum(self.seconds.values()) or 1.0
        rows = sorted(self.seconds.items(), key=lambda row: -row[1])
        return "\n".join(f"{name:32s} {1e3 * t:10.2f} ms {100 * t / total:5.1f} %" for name, t in rows)


class PrintAfter(PassInstrument):
    """Hands the text of the module after each pass (or only the named ones) to `sink`."""

    def __init__(self, sink: Callable[[str, str], None], only: Sequence[str] = ()) -> None:
        self.sink, self.only = sink, tuple(only)

    def run_after_pass(self, module: IRModule, info: PassInfo) -> None:
        if not self.only or info.name in self.only or info.spec in self.only:
            self.sink(info.name, module.astext(False))
