"""Operators, under the name of Relay-era scripts.

In: a name. Out: what it stands for. Invariant: nothing is here, and nothing imported before it is asked for. Where to
look next: `relay/op/`.
"""

from armillary.base.lazy import lazy_names

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Op": "armillary.relay.op:Op",
        "register_op_attr": "armillary.relay.op:register_op_attr",
        "register_intrin_lowering": "armillary.tir.transform.lower_intrin:register_intrin_lowering",
    },
)
