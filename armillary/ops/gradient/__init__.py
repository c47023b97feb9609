"""Reverse-mode differentiation of the graph language.

In: a function. Out: a function of the same parameters that gives its value and its parameters' gradients.
Modules: rules (the table and what rules share), elementwise, shapes, networks (the rules), derive (the walk).
Invariant: a rule builds calls of operators only, so a gradient has a gradient itself.
"""

from __future__ import annotations

from armillary.base.lazy import lazy_names

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "gradient": "armillary.ops.gradient.derive:gradient",
        "register_gradient": "armillary.ops.gradient.rules:register_gradient",
    },
)
