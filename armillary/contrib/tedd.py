"""Schedules as drawings in DOT, the language of Graphviz: what reads what, the tree of loops, where loops come from.

In: a schedule. Out: DOT, returned or written to a file that `dot -Tsvg` draws. Invariant: nothing is lowered; what is
drawn is what the schedule holds. As text: `armillary.lower(schedule, …, simple_mode=True)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from armillary.base.boundary import boundary
from armillary.base.files import write_atomic
from armillary.contrib.relay_viz.dot import attributes, quoted
from armillary.errors import TypeMismatch, UnsupportedError
from armillary.te.schedule import Schedule
from armillary.te.stage import Fuse, Split, Stage

_ATTACHED = {1: "kGroupRoot", 2: "kInline", 4: "kScope"}


def _drawing(called: str, name: str, lines: Callable[[Schedule], Iterator[str]]) -> Callable[..., str | None]:
    """A function that draws: `show_svg` is refused, `dot_file_path` is written, the text returned if asked for."""

    @boundary(called, arguments=True)
    def draw(
        sch: Schedule, show_svg: bool = False, dot_file_path: str = "", output_dot_string: bool = False
    ) -> str | None:
        if not isinstance(sch, Schedule):
            raise TypeMismatch(f"{called}: got {type(sch).__name__}, wanted a schedule")
        if show_svg:
            raise UnsupportedError(f"{called}: nothing draws DOT here", hint="write dot_file_path=, then dot -Tsvg")
        text = "\n".join([f"digraph {quoted(name)} {{", *(f"  {line}" for line in lines(sch)), "}\n"])
        if dot_file_path:
            write_atomic(Path(dot_file_path), text.encode())
        return text if output_dot_string else None

    draw.__name__ = draw.__qualname__ = called
    draw.__doc__ = lines.__doc__
    return draw


def _node(name: str, label: str, shape: str = "box") -> str:
    return f"{name}{attributes({'label': label, 'shape': shape})};"


def _dataflow(sch: Schedule) -> Iterator[str]:
    """Stages and the tensors between them: `Stage_0:O_0 -> Tensor_0_0 -> Stage_1:I_0`."""
    places = {stage.op: place for place, stage in enumerate(sch.stages)}
    for place, stage in enumerate(sch.stages):
        ports = "|".join(f"<I_{k}>I_{k}" for k in range(len(stage.op.input_tensors)))
        outs = "|".join(f"<O_{k}>O_{k}" for k in range(stage.op.num_outputs))
        yield _node(f"Stage_{place}", f"{{{{{ports}}}|{stage.key} ({type(stage.op).__name__})|{{{outs}}}}}", "record")
        for k in range(stage.op.num_outputs):
            tensor = stage.op.output(k)
            yield _node(f"Tensor_{place}_{k}", f"{list(map(str, tensor.shape))}\n{tensor.dtype}", "oval")
            yield f"Stage_{place}:O_{k} -> Tensor_{place}_{k};"
        for k, tensor in enumerate(stage.op.input_tensors):
            if tensor.op in places:
                yield f"Tensor_{places[tensor.op]}_{tensor.value_index} -> Stage_{place}:I_{k};"


def _loops(stage: Stage) -> str:
    rows = [stage.key + (" (inline)" if stage.is_inline else "")]
    return "\n".join([*rows, *(f"{axis.var.name}: {axis.dom.extent if axis.dom else '?'}" for axis in stage.leaf)])


def _tree(sch: Schedule) -> Iterator[str]:
    """Stages with their loops, each below the loop that it is computed in, else below ROOT."""
    yield _node("ROOT", "ROOT")
    places = {stage.key: place for place, stage in enumerate(sch.stages)}
    for place, stage in enumerate(sch.stages):
        yield _node(f"Stage_{place}", _loops(stage))
        label = attributes({"label": _ATTACHED[stage.attach_type]})
        if stage.attach is None:
            yield f"ROOT -> Stage_{place}{label};"
        else:
            parent, axis = stage.attach
            yield f"Stage_{places[parent.key]} -> Stage_{place}{attributes({'label': axis.var.name})};"


def _axes(sch: Schedule) -> Iterator[str]:
    """The axes of each stage and the splits and fusions between them."""
    for place, stage in enumerate(sch.stages):
        names = {axis: f"IterVar_{place}_{k}" for k, axis in enumerate(stage.all_iter_vars)}
        yield _node(f"Stage_{place}", stage.key)
        for axis, name in names.items():
            yield _node(name, axis.var.name, "box" if axis in stage.leaf else "oval")
        for axis in (*stage.op.axis, *stage.op.reduce_axis):
            yield f"Stage_{place} -> {names[axis]};"
        for k, relation in enumerate(stage.relations):
            label = f"{type(relation).__name__}_{place}_{k}"
            match relation:
                case Split():
                    ends = [relation.parent], [relation.outer, relation.inner]
                case Fuse():
                    ends = [relation.outer, relation.inner], [relation.fused]
                case _:
                    ends = [], [relation.iter]
            yield _node(label, type(relation).__name__, "diamond")
            yield from (f"{names[axis]} -> {label};" for axis in ends[0])
            yield from (f"{label} -> {names[axis]};" for axis in ends[1])


viz_dataflow_graph = _drawing("viz_dataflow_graph", "Dataflow Graph", _dataflow)
viz_schedule_tree = _drawing("viz_schedule_tree", "Schedule Tree", _tree)
viz_itervar_relationship_graph = _drawing("viz_itervar_relationship_graph", "IterVar Relationship Graph", _axes)
