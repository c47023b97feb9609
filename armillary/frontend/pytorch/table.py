"""ATen operators as rules see them, and the table of the rules.

In: `@aten("relu")` or, for one overload, `@aten("mean.dim")` in a file of rules/. Out: the rule of an operator
(`aten_rule`); those on complex tensors stand under the namespace "complex". Invariant: keys are `namespace.name` or
`namespace.name.overload`; the latter win. A rule gets the call, then the operator's arguments in the order of its
schema.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn

import numpy as np

from armillary.base.aliases import Array
from armillary.base.record import record
from armillary.errors import Span, UnsupportedError
from armillary.frontend.folding.fold import Folder
from armillary.frontend.values import Value
from armillary.relay.expr import Expr
from armillary.relay.lazy_registry import LazyRegistry

AtenRule = Callable[..., Value]  # (call, *arguments)
ATEN_RULES: LazyRegistry[str, AtenRule] = LazyRegistry(lambda key: key.replace(".", ":", 1))


@record
class AtenCall:
    """One call of an operator: `name` has the namespace and the overload, `folder` knows the values of constants.

    `outputs` has a dtype for each result where the program says it, else None.
    """

    name: str
    span: Span
    folder: Folder
    outputs: Sequence[str | None] = ()

    def value(self, expr: Expr | None) -> Array | None:
        """The value of a tensor, where it is known when importing."""
        result = self.folder.value(expr)
        return result if isinstance(result, np.ndarray) else None

    def known(self, expr: Expr, what: str) -> Array:
        """The value of a tensor that must be known when importing; `what` names it in the error."""
        result = self.value(expr)
        if result is None:
            self.refuse(f"its {what} is computed when the model runs", "make it a constant of the model")
        return result

    def refuse(self, what: str, hint: str = "") -> NoReturn:
        """Raise UnsupportedError about this call."""
        raise UnsupportedError(f"{self.name}: {what}", span=self.span, hint=hint)


def aten(*names: str, namespace: str = "aten") -> Callable[[AtenRule], AtenRule]:
    """Register the rule of operators, or of one overload of an operator."""
    return ATEN_RULES.register(*(f"{namespace}.{name}" for name in names))


def aten_rule(name: str, is_of_complex: bool = False) -> AtenRule | None:
    """The rule of `namespace.name.overload`, on complex tensors if so, or None."""
    name = name.replace("aten.", "complex.", 1) if is_of_complex else name
    base = ".".join(name.split(".")[:2])
    return ATEN_RULES.get(name) or ATEN_RULES.get(base)
