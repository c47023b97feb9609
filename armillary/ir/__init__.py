"""What the graph language and the loop language share: functions, global names and modules of them.

In: functions (`relay.Function`, `tir.PrimFunc`). Out: an `IRModule`, a mapping from names to functions that prints.
Invariant: functions themselves never change; a module changes only through `mod[name] = function`; passes return
new modules. Where to look next: `transform.py` (passes over modules), `relay/`, `tir/`.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, Mapping
from typing import Any, ClassVar

from armillary.base import slots
from armillary.base.boundary import bounded
from armillary.base.lazy import deferred, lazy_names
from armillary.base.node import Node, Pairs, node
from armillary.errors import ModelError

with deferred():
    from armillary.text.html import source_html


class Attrs(Pairs):
    """(key, value) pairs, hashable and ordered; read by key too: `attrs["Primitive"]`, `"Primitive" in attrs`."""

    __slots__: tuple[str, ...] = ()

    def __getitem__(self, key: Any) -> Any:  # Any: a name, an index or a slice
        if not isinstance(key, str):
            return super().__getitem__(key)
        result = next((value for name, value in self if name == key), self)
        if result is self:
            raise KeyError(key)
        return result

    def __contains__(self, key: object) -> bool:
        return any(name == key for name, _ in self) if isinstance(key, str) else super().__contains__(key)

    def keys(self) -> tuple[str, ...]:
        """The names of the attributes, in their order."""
        return tuple(name for name, _ in self)

    def values(self) -> tuple[object, ...]:
        """The values, in the order of the names."""
        return tuple(value for _, value in self)

    def items(self) -> Pairs:
        """The attributes as (name, value) pairs."""
        return tuple(self)

    def get(self, key: str, default: object = None) -> Any:  # Any: attribute values differ by key
        """The value of a name, or `default`."""
        return next((value for name, value in self if name == key), default)


def as_attrs(cls: type, arguments: tuple[object, ...]) -> tuple[object, ...]:  # arguments of a function's constructor
    """The arguments of a function's constructor with its attributes as `Attrs`, of pairs or of a mapping."""
    at = cls._fields.index("attrs")  # type: ignore[attr-defined]
    attrs = arguments[at]
    try:
        pairs = Attrs((str(k), v) for k, v in (attrs.items() if isinstance(attrs, Mapping) else attrs or ()))
    except (TypeError, ValueError):
        message = f"{cls.__name__}: attrs is {type(attrs).__name__} {attrs!r:.60}, wanted a dict or pairs"
        raise ModelError(message) from None
    return (*arguments[:at], pairs, *arguments[at + 1 :])


ModulePrinter = Callable[..., str]  # of a name, a function of the language, show_meta_data
Verifier = Callable[..., None]  # of a function of the language and its module: raises unless it is well formed


class BaseFunc(Node):
    """Base of functions. `attrs` holds (key, value) pairs, and is read by key too."""

    __slots__: tuple[str, ...] = ()
    _module_printer: ClassVar[ModulePrinter]
    _verifier: ClassVar[Verifier | None] = None
    _has_script: ClassVar[bool] = False  # functions of loops print as scripts
    attrs: Pairs

    def script(self) -> str:
        """The function as a script, where it is one of loops; else its text."""
        name = str(self.get_attr("global_symbol", "main"))
        if self._has_script:
            return slots.script(self)  # type: ignore[arg-type]  # a function of loops
        return type(self)._module_printer(name, self, True)

    def show(self) -> None:
        """Print the script."""
        print(self.script())

    def get_attr(self, key: str, default: object = None) -> Any:  # Any: attribute values differ by key
        return next((value for name, value in self.attrs if name == key), default)

    def __call__(self, *args: object) -> Any:  # Any: expressions in, a call out
        """A call of the function, in a Relay expression."""
        return slots.call(self, args)

    def with_attr(self, key: str | Mapping[str, object], value: object = None) -> Any:  # Any: the same class as self
        """The function with one attribute more, or with several from a mapping."""
        if isinstance(key, Mapping):
            result = self
            for name, one in key.items():
                result = result.with_attr(name, one)
            return result
        held = getattr(value, "value", None) if isinstance(value, Node) else None
        value = held if isinstance(held, int | float | str) else value  # an immediate stands for what it holds
        retained = tuple(pair for pair in self.attrs if pair[0] != key)
        names = self._fields
        return type(self)(*((*retained, (key, value)) if n == "attrs" else getattr(self, n) for n in names))

    def without_attr(self, key: str) -> Any:  # Any: the same class as self
        """The function without an attribute."""
        rest = tuple(pair for pair in self.attrs if pair[0] != key)
        return type(self)(*(rest if n == "attrs" else getattr(self, n) for n in self._fields))

    def _repr_html_(self) -> str:
        name = str(self.get_attr("global_symbol", "main"))
        return str(source_html(type(self)._module_printer(name, self, False), type(self).__name__))


@node
class GlobalVar(Node):
    """The name of a function in a module; modules hold one GlobalVar per name."""

    _binds: ClassVar[bool] = True
    name_hint: str

    def __call__(self, *args: object) -> Any:  # Any: expressions in, a call out
        """A call of the module's function of this name."""
        return slots.call(self, args)

    def astext(self, show_meta_data: bool = True) -> str:
        """The name as programs write it."""
        del show_meta_data
        return f"@{self.name_hint}"


@bounded
class IRModule:
    """Functions by global name. `mod["main"]` reads, `mod["main"] = f` writes, `mod.copy()` copies."""

    def __init__(
        self,
        functions: Mapping[GlobalVar | str, BaseFunc] | None = None,
        type_definitions: Mapping[object, object] | None = None,
    ) -> None:
        self._vars: dict[str, GlobalVar] = {}
        self._functions: dict[str, BaseFunc] = {}
        self.type_definitions: dict[object, object] = dict(
            type_definitions or {}
        )  # GlobalTypeVar: TypeData (relay/adt)
        self.asked: tuple[str, ...] = ()  # libraries that were asked what they take, by a partition
        for name, function in (functions or {}).items():
            self[name] = function

    @staticmethod
    def from_expr(
        expr: Any,
        functions: Mapping[GlobalVar | str, BaseFunc] | None = None,
        type_defs: Mapping[Any, object] | None = None,
    ) -> IRModule:
        """A module whose "main" is `expr`: a function, or an expression to be closed over its free variables."""
        module = IRModule(functions, type_defs)
        expr = expr if isinstance(expr, Node) else getattr(expr, "tuple_value", expr)  # of a TupleWrapper
        module["main"] = expr if isinstance(expr, BaseFunc) else slots.close_over(expr)
        return module

    def __getitem__(self, name: GlobalVar | str) -> Any:  # Any: relay.Function or tir.PrimFunc
        key = name if isinstance(name, str) else name.name_hint
        try:
            return self._functions[key]
        except KeyError:
            known = ", ".join(self._functions) or "none"
            raise ModelError(f"the module has no function {key!r}", hint=f"it has: {known}") from None

    def __setitem__(self, name: GlobalVar | str, function: BaseFunc) -> None:
        if not isinstance(function, BaseFunc) and not isinstance(name, str | GlobalVar):
            self.type_definitions[name] = function
        elif isinstance(name, GlobalVar):
            self._vars.setdefault(name.name_hint, name)
            self._functions[name.name_hint] = function
        else:
            self._vars.setdefault(name, GlobalVar(name))
            self._functions[name] = function

    def __contains__(self, name: GlobalVar | str) -> bool:
        return (name if isinstance(name, str) else name.name_hint) in self._functions

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    def __len__(self) -> int:
        return len(self._functions)

    def items(self) -> ItemsView[str, Any]:
        return self._functions.items()

    @property
    def functions(self) -> dict[GlobalVar, BaseFunc]:
        return {self._vars[name]: function for name, function in self._functions.items()}

    def get_global_var(self, name: str) -> GlobalVar:
        if not isinstance(name, str):
            raise ModelError(f"get_global_var: got {type(name).__name__}, wanted the name of a function")
        self[name]
        return self._vars[name]

    def same_as(self, other: object) -> bool:
        """Whether this is that very module."""
        return self is other

    def get_global_vars(self) -> list[GlobalVar]:
        return list(self._vars.values())

    def copy(self) -> IRModule:
        module = IRModule(self.functions, self.type_definitions)  # type: ignore[arg-type]
        module.asked = self.asked
        return module

    def get_type(self, name: str) -> tuple[object, ...]:  # of the graph language
        """The name of a data type, then its constructors."""
        header, data = slots.find_type(self, name)
        return (header, *data)

    def get_global_type_var(self, name: str) -> object:  # of the graph language
        """The name of a data type."""
        return slots.find_type(self, name)[0]

    def get_constructor(self, tag: int) -> object:  # of the graph language
        """The constructor of that tag."""
        return slots.find_constructor(self, tag)

    def import_from_std(self, file_name: str) -> None:
        """Add the functions and types of a file that programs find ready: "prelude.rly", "core.rly"."""
        self.update(slots.standard_module(file_name))

    def update(self, other: IRModule) -> None:
        if not isinstance(other, IRModule):
            raise ModelError(f"update: got {type(other).__name__}, wanted a module")
        self.type_definitions.update(other.type_definitions)
        for name, function in other.functions.items():
            self[name] = function

    def map_functions(self, rule: Callable[[str, Any], BaseFunc | None]) -> IRModule:
        """A module with `rule(name, function)` applied to each (None keeps it); self when nothing changed."""
        if not callable(rule):
            raise ModelError(f"map_functions: got {type(rule).__name__}, wanted a function of (name, function)")
        new = {v: rule(v.name_hint, f) for v, f in self.functions.items()}
        if all(f is None or f is self._functions[v.name_hint] for v, f in new.items()):
            return self
        functions = {v: self._functions[v.name_hint] if f is None else f for v, f in new.items()}
        return IRModule(functions, self.type_definitions)  # type: ignore[arg-type]

    def astext(self, show_meta_data: bool = True) -> str:
        """The module in its text form (it parses back when meta data is shown)."""
        types = map(str, self.type_definitions.values())
        functions = (type(f)._module_printer(n, f, show_meta_data) for n, f in self._functions.items())
        return "\n".join([*types, *functions])

    def script(self) -> str:
        """The module as a script, where its functions are loops; else its text."""
        is_loops = bool(self._functions) and all(type(f)._has_script for f in self._functions.values())
        return slots.script(self) if is_loops else self.astext()

    def show(self) -> None:
        """Print the script."""
        print(self.script())

    def __str__(self) -> str:
        """The text as a person reads it: loops without what only the runtime asks for."""
        types = map(str, self.type_definitions.values())
        functions = (type(f)._module_printer(n, f, not type(f)._has_script) for n, f in self._functions.items())
        return "\n".join([*types, *functions])

    def __repr__(self) -> str:
        names = list(self)
        more = f", … {len(names) - 8} more" if len(names) > 8 else ""
        return f"IRModule({', '.join(names[:8])}{more}; print it for its text)"

    def _repr_html_(self) -> str:
        return str(source_html(self.astext(False), f"IRModule of {len(self)} function{'s' * (len(self) != 1)}"))


_STRUCTURAL = ("assert_structural_equal", "structural_equal", "structural_hash")
_TYPES = ("FuncType", "TensorType", "TupleType", "Type")
__getattr__, __dir__ = lazy_names(  # the names of Relay-era scripts
    __name__,
    {
        **{name: f"armillary.relay.structural:{name}" for name in _STRUCTURAL},
        **{name: f"armillary.relay.types:{name}" for name in _TYPES},
        "FloatImm": "armillary.tir.expr:FloatImm",
        "IntImm": "armillary.tir.expr:IntImm",
        "Op": "armillary.relay.op:Op",
        "container": "armillary.runtime.container",
        "load_json": "armillary.relay.stored.json_form:load_json",
        "save_json": "armillary.relay.stored.json_form:save_json",
        "Range": "armillary.tir.expr:Range",
        "RelayExpr": "armillary.relay.expr:Expr",
        "instrument": "armillary.instrument",
        "register_op_attr": "armillary.relay.op:register_op_attr",
        "register_intrin_lowering": "armillary.tir.transform.lower_intrin:register_intrin_lowering",
        "transform": "armillary.transform",
    },
)
