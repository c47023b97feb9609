"""`relay.create_executor`: a module, a function or an expression as a Python function of arrays.

In: a kind ("debug": the reference interpreter; "graph", "vm", "aot": compiled), a module, a device, a target. Out: an
`Executor`, whose `evaluate` gives a callable, or the value of an expression without free variables. Invariant: "vm"
compiles once for all sizes of parameters that are unknown, where operators have forms over sizes; else what is compiled
knows every shape: unknown dimensions are those of the arguments, and each new set of them is compiled once. Programs
whose shapes depend on values are refused by "graph" and "aot"; "debug" runs them, and "vm" by the same interpreter.
`relay.vm.compile` keeps such a program as an `Executable`, whose functions are called by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.base.aliases import AnyFunction, Array
from armillary.base.boundary import boundary, bounded
from armillary.base.dtype import dtype_of
from armillary.base.extent import is_known
from armillary.base.lazy import deferred
from armillary.driver.build import build
from armillary.errors import TypeMismatch, UnsupportedError
from armillary.ir import BaseFunc, GlobalVar, IRModule
from armillary.ops.shape.dynamic import DynamicAttrs
from armillary.relay.analysis import free_vars
from armillary.relay.analysis.bind_sizes import bind_type
from armillary.relay.analysis.call_graph import CallGraph
from armillary.relay.analysis.open_parameters import sizes_given, with_open_parameters
from armillary.relay.binding import bind, bind_params_by_name, bind_types, with_own_names
from armillary.relay.evaluate import HeldValue, evaluate
from armillary.relay.expr import Call, Constant, Expr, Function, Tuple, TupleWrapper, Var
from armillary.relay.infer import infer_type
from armillary.relay.op import Op
from armillary.relay.transform.simplify._shape_branches import values_read, with_branches_chosen
from armillary.relay.transform.simplify.dynamic_to_static import dynamic_to_static
from armillary.relay.types import FuncType, TensorType, TupleType, Type, tensor_fields
from armillary.relay.walk import is_interpreted, post_order
from armillary.target import as_target

if TYPE_CHECKING:
    from armillary.driver.library import FunctionLibrary
    from armillary.runtime import Device

with deferred():
    from armillary import runtime
    from armillary.artifact import save_params
    from armillary.relay.adt.evaluate import mapped as _mapped
    from armillary.runtime.vm import pack_code

Params = Mapping[str, Any]  # Any: numpy arrays or NDArrays
Built = tuple[Any, list[str], Type]  # Any: a graph executor, or None; names of its inputs, the type of its result
KINDS = ("debug", "graph", "vm", "aot")


class Executor:
    """`relay.create_executor(...)`: `evaluate()` gives a function from arrays to NDArrays."""

    def __init__(self, kind: str, module: IRModule, device: Device, target: object, params: Params | None) -> None:
        self.kind, self.mod, self.device, self.target, self.params = kind, module, device, target, params

    def __repr__(self) -> str:
        return f"Executor({self.kind}, {self.device}, {self.target or 'no target'})"

    def evaluate(self, expr: Any = None, binds: Mapping[Any, Any] | None = None) -> Any:  # Any: a callable or a value
        """A function from arrays to arrays; of an expression whose free variables are all in `binds`, its value."""
        expr = expr.astuple() if isinstance(expr, TupleWrapper) else expr
        expr = bind(expr, binds) if binds and expr is not None else expr
        run = self._callable(self._module_of(expr))
        is_value = isinstance(expr, Expr) and not isinstance(expr, Function) and not free_vars(expr)
        return run() if is_value else run

    def _module_of(self, expr: object) -> IRModule:
        if expr is None:
            return self.mod
        if not isinstance(expr, GlobalVar):
            functions: dict[GlobalVar | str, BaseFunc] = {
                v: f for v, f in self.mod.functions.items() if v.name_hint != "main"
            }
            return IRModule.from_expr(expr, functions, self.mod.type_definitions)
        module = self.mod.copy()
        module["main"] = self.mod[expr]
        return module

    def _callable(self, module: IRModule) -> AnyFunction:
        if self.params:
            module = module.copy()
            module["main"] = bind_params_by_name(module["main"], self.params)
        main = module["main"]
        infer_type(main, module)
        is_run = self.kind == "debug" or (self.kind == "vm" and _needs_interpreter(module))
        runner = self._interpreted(module) if is_run else self._compiled(module)

        def run(*args: object, **named: object) -> Any:  # Any: arrays and tuples of them; NDArrays and lists of them
            values = [*args, *(named[p.name_hint] for p in main.params[len(args) :] if p.name_hint in named)]
            if len(values) != len(main.params):
                names = ", ".join(p.name_hint for p in main.params)
                raise TypeMismatch(f"got {len(values)} arguments, wanted {len(main.params)}: {names}")
            return runner(
                [
                    _fitted(_argument(v, p.checked_type), p.checked_type)
                    for v, p in zip(values, main.params, strict=True)
                ]
            )

        return run

    def _interpreted(self, module: IRModule) -> Callable[[list[Array]], Any]:
        return lambda values: _tensors(evaluate(module, values))

    def _compiled(self, module: IRModule) -> Callable[[list[Array]], Any]:
        builds: dict[tuple[Type | bytes, ...], Built] = {}  # by types and values that say sizes
        fixed = _of_sizes(module["main"])
        of_all: list[tuple[FuncType, Built] | None] = []  # what runs at all sizes or None, once it was asked for

        def build_of(types: tuple[Type, ...], values: Sequence[object]) -> Built:
            of_all.extend([self._open(module)] if not of_all and not fixed else [])
            if not of_all or of_all[0] is None:
                return self._built(*_with_values(module, types, values, fixed))
            main = bind_types(module["main"], types)
            wanted = infer_type(main, module)  # what does not fit together is told of these shapes
            open_type, built = of_all[0]
            sizes = sizes_given(open_type.arg_types, types)
            if sizes is not None and bind_type(open_type, sizes) == wanted:
                return built
            return self._built(_with_branches(module, main), types)

        def run(values: list[Any]) -> Any:
            types = tuple(map(_type_of, values))
            key = (*types, *(values[k].tobytes() for k in fixed))
            if key not in builds:
                builds[key] = build_of(types, values)
            graph, names, result = builds[key]
            if graph is None:  # sizes depend on values
                return self._interpreted(module)(values)
            with graph.turn.whole():
                for name, value in zip(names, _flat([v for k, v in enumerate(values) if k not in fixed]), strict=True):
                    graph.set_input(name, value)
                graph.run()
                outputs = [
                    runtime.NDArray(
                        graph.get_output(i).numpy().view(ty.dtype.numpy)
                        if ty.dtype.is_custom
                        else graph.get_output(i).numpy()
                    )
                    for i, ty in enumerate(tensor_fields(result))
                ]
            return _nested(iter(outputs), result)

        types = tuple(p.checked_type for p in module["main"].params)
        if not fixed and all(_is_static(t) for p in module["main"].params for t in _fields(p)):
            builds[types] = self._built(module, None)
        return run

    def _open(self, module: IRModule) -> tuple[FuncType, Built] | None:
        """One build for all sizes of parameters; None for other kinds, and where an operator has no form over sizes."""
        named = with_open_parameters(module) if self.kind == "vm" else None
        if named is None:
            return None
        try:
            built = self._built(named, None)
        except (UnsupportedError, TypeMismatch):  # of the shapes that are met it is told again
            return None
        checked = infer_type(named["main"], named)
        return (checked, built) if built[0] is not None and isinstance(checked, FuncType) else None

    def _built(self, module: IRModule, types: tuple[Type, ...] | None) -> Built:
        """The graph executor for arguments of these types, the names of its inputs, and the type of its result.

        None where the kind is "vm" and a size inside is a value: the interpreter runs that.
        """
        main = module["main"] if types is None else bind_types(module["main"], types)
        main = with_own_names(main)  # arguments are given in order here, by name below
        if main is not module["main"]:
            module = module.copy()
            module["main"] = main
        checked = infer_type(main, module)
        assert isinstance(checked, FuncType), "a function has a function's type"
        result = checked.ret_type
        if self.kind == "vm" and not all(map(_has_sizes, post_order(main))):
            return None, [], result
        unknown = next((t for t in tensor_fields(result) if not all(map(is_known, t.shape))), None)
        if unknown is not None:
            message = f"the executor {self.kind!r} compiles programs of known shapes; a result here is {unknown}"
            raise UnsupportedError(message, hint="relay.create_executor of 'vm' or 'debug' runs it")
        graph = build(module, self.target)["default"](self.device)
        names = [n for p in main.params for n in _input_names(p.name_hint, p.checked_type)]
        return graph, names, result


def _needs_interpreter(module: IRModule) -> bool:
    """Whether a program has data types, cells or recursion."""
    functions = [f for f in module.functions.values() if isinstance(f, Function)]
    is_recursive = len(functions) > 1 and any(CallGraph(module).is_recursive(v) for v in module.get_global_vars())
    return is_recursive or any(is_interpreted(e) for f in functions for e in post_order(f))


def _of_sizes(function: Function) -> tuple[int, ...]:
    """The parameters whose values are attributes of `dynamic` calls, or have a part in them."""
    asked = [e for e in post_order(function) if isinstance(e, Call) and isinstance(e.attrs, DynamicAttrs)]
    exprs = [x for e in asked if isinstance(e.args[0], Tuple) for x in e.args[0].fields[-len(e.attrs.names) :]]
    used = {key for x in exprs for key in values_read(x)}
    tensors = [isinstance(p.checked_type, TensorType) for p in function.params]
    return tuple(k for k, p in enumerate(function.params) if id(p) in used and tensors[k])


def _with_values(
    module: IRModule, types: tuple[Type, ...], values: Sequence[object], fixed: tuple[int, ...]
) -> tuple[IRModule, tuple[Type, ...]]:
    """The module with parameters bound to their values, and what `dynamic` calls become; the types of the others."""
    if not fixed:
        return _with_branches(module, bind_types(module["main"], types)), types
    main = with_own_names(module["main"])
    module = module.copy()
    module["main"] = bind_params_by_name(main, {main.params[k].name_hint: values[k] for k in fixed})
    others = tuple(ty for k, ty in enumerate(types) if k not in fixed)
    return dynamic_to_static(_with_branches(module, bind_types(module["main"], others))), others


def _with_branches(module: IRModule, main: Function) -> IRModule:
    """The module with this main function, in which the branches that shapes decide are taken."""
    result = module.copy()
    result["main"] = with_branches_chosen(main)
    return result


def _fields(param: Var) -> tuple[TensorType, ...]:
    return tensor_fields(param.checked_type)


def _has_sizes(expr: Expr) -> bool:
    """Whether every tensor that an expression gives has known sizes."""
    ty = None if isinstance(expr, Op) else expr.checked_type
    return not isinstance(ty, TensorType | TupleType) or all(is_known(d) for t in tensor_fields(ty) for d in t.shape)


def _is_static(ty: TensorType) -> bool:
    return all(isinstance(d, int) for d in ty.shape)


def _input_names(name: str, ty: Type) -> list[str]:
    count = len(tensor_fields(ty))
    return [name] if isinstance(ty, TensorType) else [f"{name}.{k}" for k in range(count)]


def _type_of(value: Any) -> Type:  # Any: an array or a tuple
    if isinstance(value, tuple):
        return TupleType(tuple(map(_type_of, value)))
    return TensorType(value.shape, dtype_of(value))


def _flat(value: object) -> Iterator[object]:  # Any: arrays, tuples and lists of them
    if isinstance(value, tuple | list):
        for part in value:
            yield from _flat(part)
    else:
        yield value


def _nested(outputs: Iterator[object], ty: Type) -> Any:  # Any: a tensor, a list of them
    if isinstance(ty, TupleType):
        return [_nested(outputs, t) for t in ty.fields]
    return next(outputs)


def _argument(value: object, ty: Type) -> object:  # an array or a tuple of them
    """An argument as arrays; of a tuple's parameter, each of its fields."""
    if isinstance(ty, TupleType) and isinstance(value, tuple | list) and len(value) == len(ty.fields):
        return tuple(map(_argument, value, ty.fields))
    result: object = _plain(value)
    return result


def _plain(value: object) -> Any:  # Any: what scripts pass, and arrays or tuples of them
    """An argument as an array: of a constant its values, of a tuple those of its fields."""
    if isinstance(value, HeldValue):
        return _mapped(value, _plain)
    if isinstance(value, Constant | runtime.NDArray):
        return value.data if isinstance(value, Constant) else value.numpy()
    if isinstance(value, tuple | list) and any(isinstance(v, Constant | runtime.NDArray | np.ndarray) for v in value):
        return tuple(map(_plain, value))
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        message = f"an argument is {type(value).__name__}, which numpy makes no array of: {error}"
        raise TypeMismatch(message, hint="pass numpy arrays") from error
    if array.dtype == object:
        raise TypeMismatch(f"an argument is {type(value).__name__}, wanted an array", hint="pass numpy arrays")
    return array


def _fitted(value: object, ty: Type) -> Any:  # Any: an array or a tuple of them
    """The argument in the dtype of its parameter: numpy's own are 64 bits wide."""
    if isinstance(ty, TupleType) and isinstance(value, tuple):
        return tuple(_fitted(v, t) for v, t in zip(value, ty.fields, strict=False))
    if isinstance(value, np.ndarray) and isinstance(ty, TensorType) and ty.dtype.is_custom:
        if value.dtype != ty.dtype.numpy:
            hint = "a function that casts its argument makes it of an array of numbers"
            raise TypeMismatch(f"an argument is {value.dtype}, wanted the bits of {ty.dtype}", hint=hint)
        return value.view(ty.dtype.numpy)
    if isinstance(value, np.ndarray) and isinstance(ty, TensorType) and value.dtype != ty.dtype.numpy:
        return value.astype(ty.dtype.numpy) if _is_number(value) else value
    return value


def _is_number(value: Array) -> bool:
    return value.dtype.kind in "biuf"


def _tensors(value: Any) -> Any:  # Any: arrays, tuples of them; NDArrays, lists of them
    """A result as tensors; of a tuple a list, of a tuple in a tuple a list in a list."""
    if isinstance(value, tuple | list):
        return [_tensors(v) for v in value]
    if isinstance(value, HeldValue):
        return _mapped(value, _tensors)
    return runtime.NDArray(np.ascontiguousarray(value).reshape(np.shape(value)))


def create_executor(
    kind: str = "debug",
    mod: IRModule | None = None,
    device: Device | None = None,
    target: object = "llvm",
    params: Params | None = None,
) -> Executor:
    """An executor of kind "debug" (the reference interpreter), or "graph", "vm" or "aot" (compiled)."""
    if not isinstance(kind, str) or kind not in KINDS:
        raise UnsupportedError(f"executor kind {kind!r} is not supported", hint=f"kinds: {', '.join(KINDS)}")
    if mod is not None and not isinstance(mod, IRModule):
        hint = "IRModule.from_expr(function), or evaluate(function)"
        raise TypeMismatch(f"create_executor: mod is {type(mod).__name__}, wanted a module", hint=hint)
    if params is not None and not isinstance(params, Mapping):
        message = f"create_executor: params are {type(params).__name__}, wanted a dictionary from names to arrays"
        raise TypeMismatch(message)
    where = runtime.cpu(0) if device is None else device
    if not isinstance(where, runtime.Device):
        message = f"create_executor: the device is {type(where).__name__}, wanted such as armillary.cpu()"
        raise TypeMismatch(message)
    return Executor(kind, mod if mod is not None else IRModule(), where, target, params)


@bounded
class Executable:
    """The functions of a module, each by an executor of kind "vm"; parameters are those of main."""

    def __init__(self, module: IRModule, target: object, params: Params | None) -> None:
        self.mod, self.target, self.params = module, target, dict(params or {})

    def function(self, name: str, device: Device) -> tuple[list[str], AnyFunction]:
        """The names of a function's arguments, without those that are parameters, and a callable."""
        functions = {v.name_hint: (v, f) for v, f in self.mod.functions.items()}
        if name not in functions:
            raise TypeMismatch(f"the executable has no function {name!r}; it has: {', '.join(sorted(functions))}")
        variable, function = functions[name]
        if not isinstance(function, Function):
            raise TypeMismatch(f"{name!r} is a {type(function).__name__}, wanted a graph function")
        params = self.params if name == "main" else {}
        executor = create_executor("vm", mod=self.mod, device=device, target=self.target, params=params)
        call = executor.evaluate() if name == "main" else executor.evaluate(variable)
        return [p.name_hint for p in function.params if p.name_hint not in params], call

    def save(self) -> tuple[bytearray, FunctionLibrary]:
        """The code of main and its library, for `runtime.vm.Executable.load_exec` once the library was exported.

        Sizes that are unknown in main's parameters are named in what is saved. Raises UnsupportedError for a program
        whose kernels depend on the shapes of calls, and for what `relay.build` refuses.
        """
        module = self.mod.copy()
        module["main"] = bind_params_by_name(module["main"], self.params)
        is_open = [p for p in module["main"].params if not all(map(_is_static, _fields(p)))]
        named = with_open_parameters(module) if is_open else module
        if named is None:
            message = f"an executable whose kernels depend on shapes is not saved: {is_open[0].name_hint} is"
            raise UnsupportedError(f"{message} {is_open[0].checked_type}", hint="bind its dimensions, or call it here")
        library = build(named, self.target)
        return pack_code(library.graph_json, save_params(library.get_params())), library.get_lib()


@boundary("relay.vm.compile", arguments=True)
def compile_executable(
    mod: IRModule | Function, target: object = "llvm", target_host: object = None, params: Params | None = None
) -> Executable:
    """An executable of a module or a function. Kernels are made at the first call, for all sizes that are unknown.

    Where an operator has no form over sizes, they are made for the shapes of each call.
    """
    del target_host  # the host is this one
    if isinstance(mod, Function):
        mod = IRModule.from_expr(mod)
    if not isinstance(mod, IRModule):
        raise TypeMismatch(f"relay.vm.compile: got {type(mod).__name__}, wanted a module or a function")
    if not mod.functions:
        raise TypeMismatch("relay.vm.compile: the module has no function")
    return Executable(mod, as_target(target), params)
