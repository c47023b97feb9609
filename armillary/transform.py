"""Passes over modules: definitions, sequences, and the context that switches, configures and watches them.

In: a function `module -> module` decorated with `@define_pass("fold-constant", opt_level=2)`. Out: a `PassDefinition`,
which is still callable on a module, and gives `Pass` objects with bound options for `Sequential` and user scripts.
Invariant: a pass returns its input unchanged when there is nothing to do; every run goes through `Pass.__call__`, which
applies the current `PassContext` (opt level, required and disabled lists, instruments, config).
The order of the build's passes lives in `relay/transform/pipeline.py` and `tir/lower.py`, nowhere else. Ready-made
instruments: `instrument.py`.
"""

from __future__ import annotations

import contextvars
import inspect
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, ClassVar

from armillary.base.boundary import boundary, bounded
from armillary.base.lazy import deferred, find, lazy_names, similar
from armillary.base.record import record
from armillary.errors import ArmillaryError, ConfigError
from armillary.ir import IRModule

with deferred():
    from armillary.relay.lazy_registry import load_operators

PassFunction = Callable[..., IRModule]
PASSES: dict[str, PassDefinition] = {}  # by kebab-case spec name
MAX_LEVEL = 4  # of optimisation: all passes, those that change values, too


@record
class ConfigOption:
    """One key of PassContext(config=…): its type, default and meaning.

    The default of a key that takes a dict lists its fields: what a user leaves out keeps its default.
    """

    name: str
    type: type | tuple[type, ...]
    default: Any
    doc: str

    def __getitem__(self, key: str) -> str:
        """`["type"]`: the Relay-era name of the type."""
        if key != "type":
            raise KeyError(key)
        kinds = self.type if isinstance(self.type, tuple) else (self.type,)
        return next((_ERA_TYPES[kind] for kind in kinds if kind in _ERA_TYPES), "Array")


_ERA_TYPES: dict[type, str] = {bool: "IntImm", int: "IntImm", str: "runtime.String", dict: "Map"}
CONFIG_OPTIONS: dict[str, ConfigOption] = {}
_PASS_PACKAGES = (
    "armillary.relay.transform",
    "armillary.tir.lower",
    "armillary.tir.transform",
)  # asked when a name is not known yet


@boundary("transform.register_config_option", arguments=True)
def register_config_option(name: str, kind: type | tuple[type, ...], default: object, doc: str) -> ConfigOption:
    """Declare a configuration key. Called at import by the module that reads the key."""
    if not isinstance(name, str):
        raise ConfigError(f"register_config_option: got {type(name).__name__} {name!r}, wanted the name of a key")
    option = ConfigOption(name, kind, default, doc)
    CONFIG_OPTIONS[name] = option
    return option


for _key, _kind in (("use_auto_scheduler", bool), ("use_meta_schedule", bool), ("use_meta_schedule_dispatch", int)):
    register_config_option(
        f"relay.backend.{_key}", _kind, _kind(), "records hold under ApplyHistoryBest, whatever this says"
    )
BARRIER = register_config_option(
    "tir.detect_global_barrier",
    bool,
    False,
    "kernels: barriers also for global memory that a group writes and reads; refused where groups would wait. The "
    "parallel loops of a CPU always have them",
)
ADD_LOWER_PASS = register_config_option("tir.add_lower_pass", (list, tuple), (), "user passes: [[phase, pass], ...]")


class PassInstrument:
    """Watches passes. Override any hook; `should_run` False skips a pass that is not required.

    `needs_kernels` says that the loop passes must be seen too: a build then lowers every kernel anew, although the
    cache has it compiled.
    """

    needs_kernels: ClassVar[bool] = True

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


class _Trace(PassInstrument):
    """The function that scripts before 0.8 give as `trace`: called with True before a pass and False after it."""

    def __init__(self, function: Callable[[IRModule, PassInfo, bool], object]) -> None:
        if not callable(function):
            raise ConfigError(f"trace is {function!r}, wanted a function of a module, a pass's info and a flag")
        self.function = function

    def run_before_pass(self, module: IRModule, info: PassInfo) -> None:
        self.function(module, info, True)

    def run_after_pass(self, module: IRModule, info: PassInfo) -> None:
        self.function(module, info, False)


@record
class PassInfo:
    """A pass's Relay-era name (CamelCase, as in disabled_pass lists), spec name (kebab-case) and minimum opt level.

    `aliases` are other names that users write for it; a loop pass is also known without its prefix "tir.".
    """

    name: str
    spec: str = ""
    opt_level: int = 0
    required: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """Everything the pass may be called."""
        return frozenset((self.name, self.spec, self.name.rpartition(".")[2], *self.aliases))


_USER_PASSES: set[str] = set()  # names given to module_pass and the like


@bounded
class PassContext:
    """Options in force for the passes run inside a `with` block. The default, outside any block, is opt_level 2.

    Raises ConfigError for an unknown config key (naming the close ones) or a value of the wrong type; warns of names
    in the lists that no pass has. A level above 4 is as 4. `trace(module, info, is_before)` is called before and after
    each pass. A nested context replaces the outer one as a whole.
    """

    def __init__(
        self,
        opt_level: int = 2,
        required_pass: Sequence[str] | None = None,
        disabled_pass: Sequence[str] | None = None,
        instruments: Sequence[object] | None = None,  # PassInstrument, or an object with some of its hooks
        config: Mapping[str, object] | None = None,
        *,
        trace: Callable[[IRModule, PassInfo, bool], object] | None = None,
    ) -> None:
        if not isinstance(opt_level, int) or isinstance(opt_level, bool) or opt_level < 0:
            raise ConfigError(f"opt_level is {opt_level!r}, wanted 0 to {MAX_LEVEL}", hint="3 is the usual choice")
        self.opt_level = opt_level
        self.required_pass = _pass_names("required_pass", required_pass)
        self.disabled_pass = _pass_names("disabled_pass", disabled_pass)
        watchers = () if trace is None else (_Trace(trace),)
        self.instruments = (*_instruments(instruments or ()), *watchers)
        if not isinstance(config or {}, Mapping):
            raise ConfigError(f"config is {config!r}, wanted a dictionary from keys to values")
        self.config = {key: _checked(key, value) for key, value in (config or {}).items()}
        self._tokens: list[contextvars.Token[PassContext | None]] = []

    @staticmethod
    def current() -> PassContext:
        """The innermost context in force."""
        return _CURRENT.get() or _DEFAULT

    @staticmethod
    def list_configs() -> dict[str, ConfigOption]:
        """Every configuration key there is."""
        _load_options()
        return dict(sorted(CONFIG_OPTIONS.items()))

    @boundary("PassContext.get", arguments=True, first=1)
    def get(self, option: ConfigOption) -> Any:  # Any: the option's own type
        """The value of a configuration key in this context; a dict has all its fields."""
        value = self.config.get(option.name, option.default)
        return {**option.default, **value} if option.type is dict else value

    @boundary("PassContext.pass_enabled", arguments=True, first=1)
    def pass_enabled(self, info: PassInfo) -> bool:
        """Disabled list, then required list, then the opt level."""
        if not info.names.isdisjoint(self.disabled_pass):
            return False
        return self.is_required(info) or self.opt_level >= info.opt_level

    @boundary("PassContext.is_required", arguments=True, first=1)
    def is_required(self, info: PassInfo) -> bool:
        """Whether the required list names the pass."""
        return not info.names.isdisjoint(self.required_pass)

    def override_instruments(self, instruments: Sequence[object]) -> None:
        """Other instruments from here on: the old ones leave, the new ones enter."""
        wanted, old = _instruments(instruments), self.instruments
        self.instruments = ()  # should one of them fail to leave
        _each(i.exit_pass_ctx for i in old)
        self.instruments = wanted
        self._enter_instruments()

    def without_instruments(self) -> PassContext:
        """The same options, watched by nobody."""
        quiet = PassContext(self.opt_level, config=self.config)
        quiet.required_pass, quiet.disabled_pass = self.required_pass, self.disabled_pass
        return quiet

    def _enter_instruments(self) -> None:
        """Enter all; when one fails, those that have entered leave again and none stays."""
        entered: list[PassInstrument] = []
        for instrument in self.instruments:
            try:
                instrument.enter_pass_ctx()
            except BaseException:
                self.instruments = ()
                _each(i.exit_pass_ctx for i in entered)
                raise
            entered.append(instrument)

    def __enter__(self) -> PassContext:
        self._enter_instruments()
        self._tokens.append(_CURRENT.set(self))
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _CURRENT.reset(self._tokens.pop())
        try:
            _each(i.exit_pass_ctx for i in self.instruments)
        except BaseException:
            self.instruments = ()  # what failed to leave does not enter again
            raise

    def __repr__(self) -> str:
        return (
            f"PassContext(opt_level={self.opt_level}, required_pass={list(self.required_pass)}, "
            f"disabled_pass={list(self.disabled_pass)}, instruments={list(self.instruments)}, config={self.config})"
        )


def _each(actions: Iterable[Callable[[], None]]) -> None:
    """Do all, then raise the first error that one of them had."""
    errors: list[BaseException] = []
    for action in actions:
        try:
            action()
        except BaseException as error:
            errors.append(error)
    if errors:
        raise errors[0]


def _instruments(instruments: object) -> tuple[PassInstrument, ...]:
    if not isinstance(instruments, Iterable) or getattr(instruments, "shape", None) == ():
        raise ConfigError(f"instruments are {instruments!r}, wanted a list of them")
    return tuple(map(_as_instrument, instruments))


def _as_instrument(item: object) -> PassInstrument:
    """An instrument, or a view of an object that has some of the hooks."""
    if isinstance(item, PassInstrument):
        return item
    hooks = [name for name in vars(PassInstrument) if not name.startswith("_") and callable(getattr(item, name, None))]
    if isinstance(item, type) or not hooks:
        raise ConfigError(f"instruments: {item!r} is no PassInstrument", hint="pass an object with run_before_pass, …")
    instrument = PassInstrument()
    for name in hooks:
        setattr(instrument, name, getattr(item, name))
    return instrument


def _pass_names(what: str, passes: Sequence[str] | None) -> tuple[str, ...]:
    """A list of pass names; a name that no pass has only warns, because lists outlive the passes they name."""
    if isinstance(passes, str):
        raise ConfigError(f"{what} is the text {passes!r}, wanted a list of names", hint=f"write [{passes!r}]")
    names = tuple(passes or ())
    wrong = [name for name in names if not isinstance(name, str)]
    if wrong:
        raise ConfigError(f"{what}: {wrong[0]!r} is no name of a pass", hint="names are texts, such as 'FuseOps'")
    known = known_names() if names else frozenset()
    for name in names:
        if name not in known:
            close = similar(name, known, 3, 0.6)
            message = f"; similar: {', '.join(close)}" if close else ""
            warnings.warn(f"{what}: there is no pass {name!r}{message}", stacklevel=3)
    return names


def known_names() -> frozenset[str]:
    """Every name that some pass goes by."""
    _load_passes()
    return frozenset(_USER_PASSES).union(*(p.info.names for p in PASSES.values()))


def _loaders() -> tuple[Callable[[], object], ...]:
    """What imports loop passes, graph passes, operators: each registers itself and its options; the quickest first."""
    graph_passes, _, loop_passes = map(find, _PASS_PACKAGES)
    return loop_passes.load_all, graph_passes.load_all, load_operators


def _load_passes() -> None:
    """Import every pass."""
    for load in _loaders()[:-1]:
        load()


def _load_options() -> None:
    """Import whatever has options: passes and operators."""
    for load in _loaders():
        load()


def _checked(key: str, value: Any) -> Any:
    for load in _loaders() if key not in CONFIG_OPTIONS else ():
        if key not in CONFIG_OPTIONS:
            load()
    option = CONFIG_OPTIONS.get(key)
    if option is None:
        close = similar(key, CONFIG_OPTIONS, 3, 0.5)
        raise ConfigError(
            f"unknown pass configuration key {key!r}",
            hint=("did you mean " + " or ".join(close) + "? " if close else "")
            + "known keys: "
            + ", ".join(sorted(CONFIG_OPTIONS)),
        )
    _check_type(key, value, option.type)
    if option.type is dict:
        _check_fields(key, value, option.default)
    return value


def _check_type(key: str, value: object, kind: type | tuple[type, ...]) -> None:
    if isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
        return
    kinds = kind if isinstance(kind, tuple) else (kind,)
    wanted = " or ".join(k.__name__ for k in kinds)
    raise ConfigError(f"{key}: expected {wanted}, got {type(value).__name__} {value!r}")


def _check_fields(key: str, value: Mapping[str, object], fields: Mapping[str, object]) -> None:
    for name, item in value.items():
        if name not in fields:
            raise ConfigError(f"{key} has no option {name!r}", hint=f"it has: {', '.join(fields)}")
        _check_type(f"{key}[{name!r}]", item, type(fields[name]))


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
        if not context.is_required(self.info) and not all(i.should_run(module, self.info) for i in context.instruments):
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


ModulePass = Pass


def PrintIR(header: str = "", show_meta_data: bool = False) -> Pass:  # noqa: N802  (the name scripts use)
    """A pass that changes nothing: it writes the module's text to standard error, below a header."""

    def show(module: IRModule) -> IRModule:
        print(f"PrintIR({header}):\n{module.astext(show_meta_data)}", file=sys.stderr)
        return module

    return Pass(show, PassInfo("PrintIR", "print-ir"))


def _add_note(error: Exception, text: str) -> None:
    if hasattr(error, "add_note"):  # Python 3.11
        error.add_note(text)


@bounded
class Sequential(Pass):
    """Passes in order; each runs only if the current context enables it, after the passes that it requires."""

    def __init__(self, passes: Sequence[Pass], name: str = "sequential", opt_level: int = 0) -> None:
        super().__init__(self._run, PassInfo(name, name, opt_level))
        self.passes = list(passes)

    def _run(self, module: IRModule) -> IRModule:
        for item in self.passes:
            if PassContext.current().pass_enabled(item.info):
                for name in item.info.required:
                    module = find_pass(name).bind()(module)
                module = item(module)
        return module

    def __call__(self, module: IRModule) -> IRModule:
        return self._run(module)


@bounded
class PassDefinition:
    """A registered pass: callable on a module, or with options alone to get a `Pass`."""

    def __init__(self, function: PassFunction, info: PassInfo) -> None:
        self.function, self.info = function, info
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        self.__wrapped__ = function
        parameters = list(inspect.signature(function).parameters.values())[1:]
        self.options = {p.name: p.default for p in parameters}

    def __call__(self, module: IRModule, **options: object) -> IRModule:
        return self.bind(**options)(module)

    def bind(self, *args: object, **options: object) -> Pass:
        """A Pass with these options (by position in the order of the function's signature, or by name)."""
        options.update(zip(self.options, args, strict=False))
        unknown = [name for name in options if name not in self.options]
        if unknown or len(args) > len(self.options):
            have = ", ".join(self.options) or "none"
            raise ConfigError(f"pass {self.info.spec}: unknown option {unknown or list(args)}", hint=f"it has: {have}")
        function = self.function
        return Pass(lambda module: function(module, **options), self.info)


@boundary("transform.define_pass", arguments=True)
def define_pass(
    spec: str, *, opt_level: int = 0, name: str = "", required: Sequence[str] = (), aliases: Sequence[str] = ()
) -> Callable[[PassFunction], PassDefinition]:
    """Decorator: register `function(module, *, options…) -> module` under a kebab-case name.

    The Relay-era name is the CamelCase form unless `name` gives it (tir passes: "tir.UnrollLoop").
    """
    camel = name or "".join(word.capitalize() for word in spec.split("-"))

    def register(function: PassFunction) -> PassDefinition:
        definition = PassDefinition(function, PassInfo(camel, spec, opt_level, tuple(required), tuple(aliases)))
        PASSES[spec] = definition
        return definition

    return register


@boundary("transform.find_pass", arguments=True)
def find_pass(name: str) -> PassDefinition:
    """A registered pass by spec name or Relay-era name."""
    if name not in PASSES:
        _load_passes()
    result = PASSES.get(name) or next((p for p in PASSES.values() if name in p.info.names), None)
    if result is None:
        close = similar(name, known_names(), 3, 0.5)
        message = f"similar: {', '.join(close)}; " if close else ""
        raise ConfigError(f"there is no pass {name!r}", hint=f"{message}list them with: armc opt --list")
    return result


@boundary("transform.module_pass", arguments=True)
def module_pass(
    function: object = None, opt_level: int = 0, name: str = "", required: Sequence[str] = ()
) -> Any:  # Any: a Pass, or a decorator giving one, as Relay-era scripts expect
    """Decorator for user passes: `f(module, context) -> module` becomes a Pass.

    A class with a method `transform_module(module, context)` becomes one whose objects are passes.
    """

    def wrap(user: Any) -> Any:  # Any: a function of module and context, or a class
        if isinstance(user, type):
            title = name or user.__name__
            return _pass_class(user, "transform_module", lambda f: module_pass(f, opt_level, title, required))
        label = name or user.__name__
        _USER_PASSES.add(label)
        info = PassInfo(label, label, opt_level, tuple(required))
        return Pass(lambda module: user(module, PassContext.current()), info)

    return wrap(function) if function is not None else wrap


@boundary("transform.function_pass", arguments=True)
def function_pass(function: object = None, opt_level: int = 0, name: str = "", required: Sequence[str] = ()) -> Any:
    """Decorator for user passes over one function: `f(function, module, context) -> function` becomes a Pass.

    A class with a method `transform_function(function, module, context)` becomes one whose objects are passes.
    """

    def wrap(user: Any) -> Any:  # Any: as in module_pass
        if isinstance(user, type):
            label = name or user.__name__
            return _pass_class(user, "transform_function", lambda f: function_pass(f, opt_level, label, required))

        def run(module: IRModule, context: PassContext) -> IRModule:
            return module.map_functions(lambda _, f: user(f, module, context))

        result: Pass = module_pass(run, opt_level, name or user.__name__, required)
        return result

    return wrap(function) if function is not None else wrap


def _pass_class(user: type, method: str, make: Callable[[Any], Pass]) -> type[Pass]:  # Any: a bound method
    """A class like the user's whose objects are passes, and have the attributes of the user's."""

    class UserPass(Pass):
        def __init__(self, *args: object, **options: object) -> None:  # what the user's constructor takes
            held = user(*args, **options)
            instance = make(getattr(held, method))
            super().__init__(instance.function, instance.info)
            self.held = held

        def __getattr__(self, name: str) -> Any:  # Any: whatever the user's object has
            return getattr(object.__getattribute__(self, "held"), name)

    UserPass.__name__ = UserPass.__qualname__ = user.__name__
    UserPass.__doc__ = user.__doc__
    return UserPass


_INSTRUMENTS = ("PassTimingInstrument", "PrintAfter", "PrintBefore", "pass_instrument")
__getattr__, __dir__ = lazy_names(__name__, {name: f"armillary.instrument:{name}" for name in _INSTRUMENTS})
