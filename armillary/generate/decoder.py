"""A decoder as the generator runs it: functions for some numbers of new tokens, and what their inputs mean.

In: a module of one main that takes tokens, positions and caches, and gives logits and caches. Out: `Decoder`; its
functions change caches in place (`in_place`). Invariant: a cache is an input (slots, heads, capacity, features) that
nothing but one nn.cache_update reads, whose result is an output.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from armillary.base.record import record
from armillary.errors import ModelError
from armillary.ir import IRModule
from armillary.ops.decoder.cache_update import NAME as CACHE_UPDATE
from armillary.relay.expr import Call, Expr, Function, Tuple, Var
from armillary.relay.op import is_call
from armillary.relay.transform.normal_form.infer_type import infer_type
from armillary.relay.types import TensorType
from armillary.relay.walk import post_order, rewrite

TOKENS, POSITIONS, START, TOTAL, LAST, MASK = "tokens", "positions", "start", "total", "last", "mask"
LONGEST, ROWS, ORDER = "longest", "rows", "order"


@record
class Decoder:
    """`make(rows, slots, wanted)`: the module for so many new tokens of so many sequences, and `wanted` logits of each.

    `roles` says what an input holds: `tokens` and `positions` (slots, rows); `start` (slots,), the position of the
    first row; `total`, positions that count after it; `last`, total - 1; `longest`, the greatest total, one number;
    `mask`, 1 for each of `capacity` positions that counts; `rows` (wanted,), the rows that logits are computed for
    (without it: all); `order` (rows,), positions that are compared to say which rows see one another. `most_rows` 1:
    rows see one another, so that tokens go in one at a time.
    """

    make: Callable[[int, int, int], IRModule]
    roles: Mapping[str, str]
    capacity: int
    most_rows: int = 1 << 30


def in_place(module: IRModule) -> tuple[IRModule, dict[str, TensorType]]:
    """The module with logits as output 0 and then its caches, which are changed where they lie; types of the caches."""
    main = infer_type(module)["main"]
    assert isinstance(main, Function), "main is a function"
    fields = main.body.fields if isinstance(main.body, Tuple) else (main.body,)
    updates = [e for e in fields if _is_update(e)]
    others = [e for e in fields if not _is_update(e)]
    if len(others) != 1 or not updates:
        message = f"{len(others)} outputs that are no caches and {len(updates)} caches"
        raise ModelError(f"a decoder has {message}, wanted one, the logits, and some", hint="see docs/limits.md")
    caches: dict[str, TensorType] = {}
    for update in updates:
        assert isinstance(update, Call), "it updates"
        cache = update.args[0]
        readers = [e for e in post_order(main) if isinstance(e, Call) and any(a is cache for a in e.args)]
        if not isinstance(cache, Var) or len(readers) != 1:
            raise ModelError(f"cache {update.span}: it is read before it is written", span=update.span)
        ty = cache.checked_type
        assert isinstance(ty, TensorType), "caches are tensors"
        caches[cache.name_hint] = ty
    body = Tuple((others[0], *updates))
    changed = rewrite(Function(main.params, body, None, main.attrs, main.span), _written_in_place)
    assert isinstance(changed, Function), "it stays a function"
    return infer_type(IRModule({"main": changed})), caches


def _written_in_place(expr: Expr) -> Expr | None:
    """An update of an input in place.

    Updates depend on updates of the layers before: each is changed where those are changed already, or layers would be
    computed twice.
    """
    if not isinstance(expr, Call) or not _is_update(expr) or not isinstance(expr.args[0], Var):
        return None
    return Call(expr.op, expr.args, dataclasses.replace(expr.attrs, in_place=True), expr.span)


def _is_update(expr: Expr) -> bool:
    return is_call(expr, CACHE_UPDATE)
