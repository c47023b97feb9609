"""`@node`: frozen, slotted IR nodes compared by identity, and everything derived from their fields.

In: a class with annotated fields. Out: a frozen class with a fast constructor, whose traversal, replacement and
structural comparison come from those fields alone. Invariant: a node never changes after construction; walks are
iterative (a graph of 10,000 chained nodes must not meet the recursion limit) and visit shared nodes once.
Scalar and loop IR: `tir/`. Graph IR: `relay/`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, Literal, ParamSpec, TypeAlias, TypeVar

import numpy as np

from armillary.base.boundary import translated
from armillary.errors import TypeMismatch

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:  # part of typing from Python 3.11 on; it does nothing when programs run

    def dataclass_transform(**_):
        return lambda decorator: decorator


T = TypeVar("T")
R = TypeVar("R")
V = TypeVar("V")
P = ParamSpec("P")
Rules: TypeAlias = dict[type, Callable[Concatenate[Any, P], R]]  # Any: an instance of the class that is the key
Visits: TypeAlias = dict[type, Callable[Concatenate[V, Any, P], R]]  # the same, of a visitor that comes first
Field: TypeAlias = "dataclasses.Field[Any]"  # Any: whatever type
Pairs: TypeAlias = tuple[tuple[str, Any], ...]  # of names and values, which differ by name
FieldConverters: TypeAlias = Mapping[str, Callable[[Any], Any]]  # Any: an argument, what its field holds
_DERIVED = "derived"
_SPAN = frozenset({"span"})
_NAMES = frozenset({"span", "name", "name_hint"})
_PLAIN = frozenset(
    {  # annotations of fields that hold no node, nor a tuple of nodes
        "str",
        "int",
        "float",
        "bool",
        "DType",
        "LoopKind",
        "Span | None",
        "Pairs",
    }
)


Coercion = Callable[..., tuple[object, ...]]  # of a class and the tuple of what a script gives: what its fields hold
Refuse = Callable[[type, Exception], Exception]
Printer = Callable[..., str]  # of a node of the language


class Node:
    """Base of all IR nodes.

    `_fields` names the arguments of the constructor in order, `_inside` those that may hold nodes, `_values(node)`
    what they hold. `_binds` is True for names (variables, buffers), which `structural_equal` matches up to renaming.
    `_is_leaf` is True where no field ever holds a node: walks do not look. `_accepts` maps a field's annotation to a
    test, in Python, of a value `{0}` that needs no conversion; where one fails, the function `_coerce` gets the class
    and the arguments, and returns those to use, or refuses them; `_refuse` tells why a derived field could not be
    computed. Languages take these, and their printers, from `base/slots.py`. `_converters` turn an argument into what
    its field holds.
    A class whose scripts give something else than its fields writes its `__init__`, which ends in `self._fill(...)`.
    """

    __slots__ = ("__weakref__",)
    _fields: ClassVar[tuple[str, ...]] = ()
    _inside: ClassVar[tuple[str, ...]] = ()
    _values: ClassVar[Callable[..., tuple[object, ...]]] = staticmethod(lambda item: ())
    _binds: ClassVar[bool] = False
    _is_leaf: ClassVar[bool] = False
    _accepts: ClassVar[dict[str, str]] = {}
    _coerce: ClassVar[Coercion | None] = None
    _refuse: ClassVar[Refuse | None] = None
    _scope: ClassVar[dict[str, object]] = {}  # what the tests of `_accepts` and the texts of derived fields name
    _converters: ClassVar[FieldConverters] = {}  # Any: an argument, what its field holds
    _printer: ClassVar[Printer | None] = None  # nodes without one print their fields

    def same_as(self, other: object) -> bool:
        """Whether it is the same node."""
        return self is other


def derived(compute: Callable[[Any], Any] | str, *, init: Literal[False] = False) -> Any:  # Any: any field type
    """A slot computed from the other fields at construction; not an argument, not compared.

    `compute` is a function of the node, or the text of an expression over the arguments' names, which is faster.
    """
    return dataclasses.field(init=init, metadata={_DERIVED: compute})


@dataclass_transform(eq_default=False, frozen_default=True, field_specifiers=(derived, dataclasses.field))
def node(cls: type[T]) -> type[T]:
    """Make `cls` a frozen, slotted node with identity comparison and a generated constructor."""
    own_repr = "__repr__" in cls.__dict__
    result = dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False, init=False)(cls)
    all_fields = dataclasses.fields(result)  # type: ignore[arg-type]
    arguments = [f for f in all_fields if _DERIVED not in f.metadata]
    result._fields = tuple(f.name for f in arguments)  # type: ignore[attr-defined]
    result._inside = () if result._is_leaf else tuple(f.name for f in arguments if f.type not in _PLAIN)  # type: ignore[attr-defined]
    result._is_leaf = not result._inside  # type: ignore[attr-defined]
    type.__setattr__(result, "_values", staticmethod(_getter(result._inside)))  # type: ignore[attr-defined]
    init = _constructor(result, arguments, [f for f in all_fields if _DERIVED in f.metadata])
    type.__setattr__(result, "_fill" if "__init__" in cls.__dict__ else "__init__", init)
    if not own_repr and result.__repr__ is object.__repr__:
        type.__setattr__(result, "__repr__", text_of if issubclass(cls, Node) and cls._printer else default_repr)
    return result


def _constructor(cls: type, arguments: list[Field], computed: list[Field]) -> Callable[..., None]:
    """Write through the slot descriptors: 1.6x faster than object.__setattr__ per field."""
    scope = dict(getattr(cls, "_scope", {}))
    signature, body = ["self"], _admission(cls, arguments, scope)
    for field in arguments:
        scope[f"set_{field.name}"] = _slot(cls, field.name)
        factory = getattr(cls, "_converters", {}).get(field.name)
        scope |= {f"convert_{field.name}": factory} if factory else {}
        value = f"convert_{field.name}({field.name})" if factory else field.name
        body.append(f"    set_{field.name}(self, {value})")
        if field.default is not dataclasses.MISSING:
            scope[f"default_{field.name}"] = field.default
            signature.append(f"{field.name}=default_{field.name}")
        else:
            signature.append(field.name)
    for field in computed:
        scope[f"set_{field.name}"] = _slot(cls, field.name)
        compute = field.metadata[_DERIVED]
        scope[f"derive_{field.name}"] = compute
        value = compute if isinstance(compute, str) else f"derive_{field.name}(self)"
        store = f"    set_{field.name}(self, {value})"
        body += _guarded(cls, store, scope) if getattr(cls, "_coerce", None) else [store]
    scope["translated"] = lambda error: translated(cls.__name__, error)
    lines = ["    try:", *(f"    {line}" for line in body or ["    pass"])]
    lines += ["    except (AttributeError, LookupError, TypeError, ValueError, OverflowError) as error:"]
    lines += ["        raise translated(error) from error"]
    exec(f"def __init__({', '.join(signature)}):\n" + "\n".join(lines), scope)
    constructor: Callable[..., None] = scope["__init__"]
    return constructor


def _admission(cls: type, arguments: list[Field], scope: dict[str, object]) -> list[str]:
    """Lines that hand arguments which are no nodes yet (numbers, texts, lists) to the language's `coerce`."""
    tests = getattr(cls, "_accepts", {})
    wanted = [f"({tests[field.type].format(field.name)})" for field in arguments if field.type in tests]
    if not wanted:
        return []
    names = ", ".join(field.name for field in arguments)
    coerce = cls._coerce  # type: ignore[attr-defined]
    scope["coerce"] = lambda *arguments: coerce(cls, arguments)
    return [f"    if not ({' and '.join(wanted)}):", f"        {names}, = coerce({names})"]


def _guarded(cls: type, store: str, scope: dict[str, object]) -> list[str]:
    """A derived field of a node whose arguments a script gives: what they lack is the script's mistake."""
    refuse = cls._refuse  # type: ignore[attr-defined]
    scope["refuse"] = lambda error: refuse(cls, error)
    return [
        "    try:",
        f"    {store}",
        "    except (AttributeError, LookupError, TypeError) as error:",
        "        raise refuse(error) from None",
    ]


def _getter(names: tuple[str, ...]) -> Callable[[object], tuple[object, ...]]:
    """A function from an object to the tuple of these fields."""
    if len(names) > 1:
        return attrgetter(*names)
    return (lambda item: (getattr(item, names[0]),)) if names else (lambda item: ())


def _slot(cls: type, name: str) -> Callable[[object, object], None]:
    for base in cls.__mro__:
        descriptor = base.__dict__.get(name)
        if descriptor is not None and hasattr(descriptor, "__set__"):
            setter: Callable[[object, object], None] = descriptor.__set__
            return setter
    raise AssertionError(f"{cls.__name__} has no slot {name}")


def text_of(self: Node) -> str:
    """The node in its language; the printer is imported when the first node prints."""
    printer = type(self)._printer
    return default_repr(self) if printer is None else printer(self)


def default_repr(self: Node) -> str:
    """`Name(field=value, ...)`, for the debugger; programs print through their language's printer."""
    inside = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._fields)
    return f"{type(self).__name__}({inside})"


def children(item: Node) -> list[Node]:
    """The nodes directly inside `item`: its fields, and the elements of tuple fields, in field order."""
    result = []
    for value in item._values(item):
        if type(value) is tuple:
            result += [element for element in value if isinstance(element, Node)]
        elif isinstance(value, Node):
            result.append(value)
    return result


def replace(item: T, **changes: object) -> T:  # values of the named fields
    """A copy with some fields changed; `item` itself when every new value is the old one."""
    names = item._fields  # type: ignore[attr-defined]
    if all(getattr(item, name) is value for name, value in changes.items()):
        return item
    values = (changes.get(name, getattr(item, name)) for name in names)
    fill = getattr(type(item), "_fill", None)
    if fill is None:
        return type(item)(*values)
    result = object.__new__(type(item))
    fill(result, *values)
    return result


def post_order(root: Node, enter: Callable[[Node], bool] | None = None) -> Iterator[Node]:
    """Every node reachable from `root` once, children before parents; `enter(n)` False keeps out of n's children."""
    _check_root(root)
    seen: set[int] = set()
    stack: list[Node | None] = [root]  # behind None stands a node whose children have been given
    while stack:
        item = stack.pop()
        if item is None:
            yield stack.pop()  # type: ignore[misc]
            continue
        if id(item) in seen:
            continue
        seen.add(id(item))
        if item._is_leaf or not (enter is None or enter(item)):
            yield item
            continue
        stack += (item, None)
        for value in reversed(item._values(item)):
            if type(value) is tuple:
                stack += [element for element in reversed(value) if isinstance(element, Node)]
            elif isinstance(value, Node):
                stack.append(value)


def _check_root(root: object) -> None:
    if not isinstance(root, Node):
        raise TypeMismatch(f"got {type(root).__name__}, wanted an expression, a statement or a function")


def reachable(root: Node) -> Iterator[Node]:
    """Every node reachable from `root` once, in any order: faster than `post_order`."""
    _check_root(root)
    seen, stack = {id(root)}, [root]
    while stack:
        item = stack.pop()
        yield item
        for value in item._values(item):
            for part in value if type(value) is tuple else (value,):
                if id(part) not in seen and isinstance(part, Node):
                    seen.add(id(part))
                    stack.append(part)


def rewrite(root: Node, rule: Callable[[Node], Node | None], enter: Callable[[Node], bool] | None = None) -> Node:
    """Rebuild bottom-up: `rule` sees each node with its children already rewritten; None keeps it.

    Sharing is kept: a node met twice is rewritten once. Unchanged parts are returned as they are.
    """
    memo: dict[int, Node] = {}
    for item in post_order(root, enter):
        rebuilt = item if enter is not None and not enter(item) else map_children(item, lambda c: memo.get(id(c), c))
        changed = rule(rebuilt)
        memo[id(item)] = rebuilt if changed is None else changed
    return memo[id(root)]


def map_children(item: Node, function: Callable[[Node], Node]) -> Node:
    """`item` with `function` applied to each direct child; `item` itself when nothing changed."""
    changes: dict[str, object] = {}
    for name in item._inside:
        value = getattr(item, name)
        if isinstance(value, Node):
            new = function(value)
            if new is not value:
                changes[name] = new
        elif type(value) is tuple and value:
            mapped = tuple(function(v) if isinstance(v, Node) else v for v in value)
            if any(new is not old for new, old in zip(mapped, value, strict=True)):
                changes[name] = mapped
    return replace(item, **changes) if changes else item


def structural_equal(
    left: object, right: object, read: Callable[[Any, str], Any] = getattr, renames: bool = True
) -> bool:  # Any: node, value
    """Whether two nodes are the same program; nodes whose class sets `_binds` match up to renaming, one to one.

    `read(node, name)` gives what is compared as a node's field. With `renames` False such a node equals itself alone.
    """
    forward: dict[int, int] = {}
    backward: dict[int, int] = {}
    seen: set[tuple[int, int]] = set()
    stack = [(left, right)]
    while stack:
        a, b = stack.pop()
        if isinstance(a, Node) and isinstance(b, Node):
            if type(a) is not type(b):
                return False
            if (id(a), id(b)) in seen or (a is b and not renames):
                continue
            seen.add((id(a), id(b)))
            if a._binds and not renames:
                return False
            if a._binds and (forward.setdefault(id(a), id(b)), backward.setdefault(id(b), id(a))) != (id(b), id(a)):
                return False
            skip = _NAMES if a._binds else _SPAN
            stack.extend((read(a, n), read(b, n)) for n in a._fields if n not in skip)
        elif isinstance(a, tuple | list) and isinstance(b, tuple | list):
            if len(a) != len(b):
                return False
            stack.extend(zip(a, b, strict=True))
        elif isinstance(a, dict) and isinstance(b, dict):
            if a.keys() != b.keys():
                return False
            stack.extend((a[k], b[k]) for k in a)
        elif not _same_value(a, b):
            return False
    return True


def _same_value(a: object, b: object) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return False
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (a != a and b != b)
    return type(a) is type(b) and bool(a == b)
