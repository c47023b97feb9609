"""Which functions fill the slots of `base/slots.py`: the one place that knows the values of all languages and what
prints, checks, infers and computes over them.

In: nothing. Out: filled slots. Invariant: this is above all layers, imports are ordinary ones that happen when a slot
is first called, and `armillary/__init__.py` imports it before any other module of the package runs. Nothing else here.
"""

from __future__ import annotations

from armillary.base import slots
from armillary.base.lazy import deferred

with deferred():
    from armillary.ops.shape.dynamic import dynamic_call
    from armillary.relay.adt.evaluate import construct, find_step
    from armillary.relay.adt.module import find_constructor, find_type, standard_module
    from armillary.relay.adt.solve import solve
    from armillary.relay.adt.text import lines_of
    from armillary.relay.analysis import close_over
    from armillary.relay.expr import call
    from armillary.relay.infer import infer_type
    from armillary.relay.names import find_operator
    from armillary.relay.op import get_op
    from armillary.relay.op.static_value import static_attribute
    from armillary.relay.printer import astext, print_function
    from armillary.relay.well_formed import verify_function
    from armillary.script.printer import script
    from armillary.te.stored.json_form import read_schedule, save
    from armillary.tir.buffer_access import access_ptr, data_of, flattened, load, offset_of, store
    from armillary.tir.coerce import coerce, min_and_extent, refuse
    from armillary.tir.printer import print_expr, print_global, print_stmt
    from armillary.tir.printer import print_function as print_prim_func
    from armillary.tir.verifier import verify
    from armillary.topi.operators import binary, converted, unary

slots.call.fill(call)
slots.close_over.fill(close_over)
slots.find_constructor.fill(find_constructor)
slots.find_type.fill(find_type)
slots.script.fill(script)
slots.standard_module.fill(standard_module)

slots.access_ptr.fill(access_ptr)
slots.coerce.fill(coerce)
slots.data_of.fill(data_of)
slots.flattened.fill(flattened)
slots.load.fill(load)
slots.min_and_extent.fill(min_and_extent)
slots.offset_of.fill(offset_of)
slots.print_expr.fill(print_expr)
slots.print_global.fill(print_global)
slots.print_prim_func.fill(print_prim_func)
slots.print_stmt.fill(print_stmt)
slots.refuse.fill(refuse)
slots.store.fill(store)
slots.verify_prim_func.fill(verify)

slots.combine.fill(binary)
slots.convert_tensor.fill(converted)
slots.read_schedule.fill(read_schedule)
slots.save_schedule.fill(save)
slots.unary.fill(unary)

slots.astext.fill(astext)
slots.construct.fill(construct)
slots.dynamic_call.fill(dynamic_call)
slots.find_operator.fill(find_operator)
slots.find_step.fill(find_step)
slots.get_op.fill(get_op)
slots.infer_type.fill(infer_type)
slots.lines_of.fill(lines_of)
slots.print_function.fill(print_function)
slots.solve.fill(solve)
slots.static_attribute.fill(static_attribute)
slots.verify_function.fill(verify_function)
