"""What a script's rule gives for `relay.op.register_infer_correct_layout`: the layouts in which a call reads and gives.

In: layouts of the inputs and results ("" or None: unknown), attributes that fit them. Out: a value with these three
fields. Invariant: nothing is checked here but by who reads it, ops/layout/_rules.py.
"""

from __future__ import annotations

from collections.abc import Sequence


class InferCorrectLayoutOutput:
    """Layouts of inputs and results, and attributes."""

    def __init__(self, input_layouts: Sequence[object], output_layouts: Sequence[object], new_attrs: object) -> None:
        self.input_layouts, self.output_layouts = list(input_layouts), list(output_layouts)
        self.new_attrs = new_attrs
