"""partition-graph: regions for external libraries become global functions.

In: a module after annotate-target (and, if wished, merge-compiler-regions). Out: one where each region is a function
`tvmgen_<mod_name>_<library>_<function>_<n>` with attributes Compiler, Primitive, Inline and global_symbol, called by
name in the region's place. Invariant: the graph computes the same; a region with several results returns a tuple;
constants are inside the function unless `bind_constants` is False. Regions that depend on each other are refused.

    def @main(%x: Tensor[(2,), float32]) {
      %0 = annotation.compiler_begin(%x, compiler="lib");
      %1 = nn.relu(%0);
      %2 = annotation.compiler_end(%1, compiler="lib");
      negative(%2)
    }
    ->
    def @main(%x: Tensor[(2,), float32]) {
      %0 = @tvmgen_default_lib_main_0(%x);
      negative(%0)
    }
    def @tvmgen_default_lib_main_0(%lib_0_i0: Tensor[(2,), float32], Compiler="lib", Primitive=1, Inline=1,
        global_symbol="tvmgen_default_lib_main_0") -> Tensor[(2,), float32] { nn.relu(%lib_0_i0) }
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from armillary.errors import TypeMismatch
from armillary.ir import GlobalVar, IRModule
from armillary.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var
from armillary.relay.infer import infer_type
from armillary.relay.transform.partition._regions import BEGIN, END, Regions, compiler_of
from armillary.relay.types import Type
from armillary.relay.walk import children, copy_type, map_children, not_primitive, post_order
from armillary.transform import define_pass, register_config_option

FALLBACK = register_config_option(
    "offload.fallback", bool, False, "a package has our own kernels for what a library computes, too"
)


@dataclass
class _Region:
    """The nodes of a region in post order; `outside` are the values that come in; `call` once there is one."""

    library: str
    nodes: list[Expr] = field(default_factory=list)
    outside: list[Expr] = field(default_factory=list)
    call: Call | None = None

    @property
    def ends(self) -> list[Call]:
        return [e for e in self.nodes if isinstance(e, Call) and compiler_of(e, END)]


@define_pass("partition-graph")
def partition_graph(module: IRModule, *, mod_name: str = "default", bind_constants: bool = True) -> IRModule:
    """Lift regions out of every function."""
    functions: dict[GlobalVar | str, Function] = {}
    result = module
    for name, function in list(module.items()):
        if isinstance(function, Function) and not_primitive(function):
            infer_type(function, module)
            changed = _Partition(f"tvmgen_{mod_name}", name, function, bind_constants, functions).run()
            if isinstance(changed, Function) and changed is not function:
                result = result.copy() if result is module else result
                result[name] = changed
    for key, lifted in functions.items():
        result[key] = lifted
    return result


class _Partition:
    """One function: values are rebuilt once all they need is; a region needs everything that comes into it."""

    def __init__(
        self, prefix: str, name: str, function: Function, bind: bool, functions: dict[GlobalVar | str, Function]
    ) -> None:
        self.prefix, self.name, self.function, self.bind, self.functions = prefix, name, function, bind, functions
        self.memo: dict[int, Expr] = {}
        self.regions: dict[int, _Region] = {}
        self.region_of: dict[int, _Region] = {}
        self._collect(post_order(function, not_primitive))

    def _collect(self, order: Sequence[Expr]) -> None:
        regions = Regions(order)
        for expr in order:
            library = regions.library[regions.of(expr)]
            if library and not isinstance(expr, Var | Constant | Function):
                region = self.regions.setdefault(regions.of(expr), _Region(library))
                region.nodes.append(expr)
                self.region_of[id(expr)] = region
        for region in self.regions.values():
            region.outside = self._outside(region)

    def _outside(self, region: _Region) -> list[Expr]:
        """Distinct values from outside, in order of use."""
        values: dict[int, Expr] = {}
        for expr in region.nodes:
            begins = bool(compiler_of(expr, BEGIN))
            for child in children(expr):
                inside = self.region_of.get(id(child)) is region and not begins
                if not inside and not isinstance(child, Function) and not (self.bind and isinstance(child, Constant)):
                    values[id(child)] = child
        return list(values.values())

    def run(self) -> Expr:
        if not self.regions:
            return self.function
        stack: list[Expr] = [self.function]
        opened: set[int] = set()
        while stack:
            expr = stack[-1]
            if id(expr) in self.memo:
                stack.pop()
                continue
            missing = [e for e in self._needs(expr) if id(e) not in self.memo]
            if not missing:
                self.memo[id(expr)] = self._build(expr)
                stack.pop()
                continue
            region = self.region_of.get(id(expr))
            key = id(region if region is not None else expr)
            if key in opened:  # all it needs was to be there by now
                raise TypeMismatch("partition-graph: two regions depend on each other", hint="use MergeCompilerRegions")
            opened.add(key)
            stack.extend(reversed(missing))
        return self.memo[id(self.function)]

    def _needs(self, expr: Expr) -> Sequence[Expr]:
        region = self.region_of.get(id(expr))
        if region is not None:
            return () if region.call is not None else region.outside
        return children(expr) if not_primitive(expr) else ()

    def _build(self, expr: Expr) -> Expr:
        region = self.region_of.get(id(expr))
        if region is None:
            return copy_type(map_children(expr, lambda e: self.memo.get(id(e), e)), expr)
        if region.call is None:
            region.call = self._lift(region)
        ends = [id(e) for e in region.ends]
        if id(expr) not in ends:
            raise TypeMismatch(f"partition-graph: a value of a {region.library} region leaves it without compiler_end")
        return region.call if len(ends) == 1 else copy_type(TupleGetItem(region.call, ends.index(id(expr))), expr)

    def _lift(self, region: _Region) -> Call:
        """Make the function of a region; return its call."""
        number = len(self.functions)
        prefix = f"{region.library}_{number}"
        local: dict[int, Expr] = {}
        params = []
        for k, value in enumerate(region.outside):
            params.append(Var(f"{prefix}_i{k}", value.checked_type))
            local[id(value)] = params[-1]
        for expr in region.nodes:
            wrapped = isinstance(expr, Call) and (compiler_of(expr, BEGIN) or compiler_of(expr, END))
            rebuilt = map_children(expr, lambda e: local.get(id(e), e))
            local[id(expr)] = rebuilt.args[0] if wrapped and isinstance(rebuilt, Call) else rebuilt
        results = [local[id(end)] for end in region.ends]
        body = results[0] if len(results) == 1 else Tuple(tuple(results))
        ret_type: Type = body.checked_type
        symbol = f"{self.prefix}_{region.library}_{self.name}_{number}"
        attrs = (("Compiler", region.library), ("Primitive", 1), ("Inline", 1), ("global_symbol", symbol))
        name = GlobalVar(symbol)
        self.functions[name] = Function(tuple(params), body, ret_type, attrs)
        call = Call(name, tuple(self.memo[id(value)] for value in region.outside))
        object.__setattr__(call, "_type", ret_type)  # a call by name has a type only within its module
        return call
