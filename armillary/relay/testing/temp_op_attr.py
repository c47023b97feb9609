"""An attribute of an operator for as long as a context lasts.

In: an operator's name, an attribute's and its value: a rule of legalisation, for instance. Out: a context. Invariant:
what the attribute was before holds again when the context ends.
"""

from __future__ import annotations

from typing import Any

from armillary.relay.op import LEGALIZE_RULES, register_op_attr


class TempOpAttr:
    """`with TempOpAttr("nn.conv2d", "FTVMLegalize", rule):`."""

    def __init__(self, op_name: str, attr_key: str, attr_value: object) -> None:  # a rule or a value
        self.op_name, self.attr_key, self.attr_value = op_name, attr_key, attr_value
        self.before: tuple[int, Any] | None = None

    def __enter__(self) -> TempOpAttr:
        self.before = LEGALIZE_RULES.setdefault(self.attr_key, {}).pop(self.op_name, None)
        register_op_attr(self.op_name, self.attr_key, self.attr_value)
        return self

    def __exit__(self, *error: object) -> None:
        rules = LEGALIZE_RULES[self.attr_key]
        rules.pop(self.op_name, None)
        if self.before is not None:
            rules[self.op_name] = self.before
