"""pad-channels: output channels of a convolution rounded up to whole vectors.

In: a module in NCHW, biases as additions. Out: a convolution with many output channels that no vector length divides
(1000 classes on 16 lanes) computes a few channels more, with zero weights; they are cut off where the chain of
per-channel operators after it ends. Invariant: values and types outside the chain stay; at most WASTE of the work is
added. Runs before alter-op-layout, which then finds whole blocks.

    nn.relu(add(nn.conv2d(%x, weight[1000]), bias))
    ->
    strided_slice(nn.relu(add(nn.conv2d(%x, padded[1008]), padded bias)), begin=[0, 0], end=[.., 1000])
"""

from __future__ import annotations

from typing import Any

import numpy as np

from armillary.ir import IRModule
from armillary.relay.expr import Call, Constant, Expr, Function
from armillary.relay.op import get_op, is_call
from armillary.relay.transform._rules import on_functions, tensor
from armillary.relay.transform.alter_op_layout import block_lanes
from armillary.relay.walk import map_children, not_primitive, post_order, users
from armillary.target import Target
from armillary.transform import define_pass

WASTE = 0.1
_FOLLOW = frozenset({
    "nn.relu", "clip", "sigmoid", "tanh", "nn.leaky_relu", "nn.global_avg_pool2d", "nn.global_max_pool2d",
    "nn.max_pool2d", "nn.avg_pool2d",
})  # fmt: skip


@define_pass("pad-channels", opt_level=3)
def pad_channels(module: IRModule, *, target: Any = None) -> IRModule:  # Any: whatever Target accepts
    """Round output channels up to whole vectors where that wastes little."""
    lanes = block_lanes(target if target is not None else Target.current() or Target("llvm"))
    return on_functions(module, lambda function: _Padder(function, lanes).run())


class _Padder:
    """Finds each chain by its last call, and rebuilds the chain wider behind a slice."""

    def __init__(self, function: Function, lanes: int) -> None:
        self.function, self.lanes = function, lanes
        self.users = users(post_order(function))

    def run(self) -> Function:
        lengths = {id(chain[-1]): len(chain) for chain in self._chains()}
        if not lengths:
            return self.function
        memo: dict[int, Expr] = {}
        for item in post_order(self.function, not_primitive):
            rebuilt = map_children(item, lambda child: memo.get(id(child), child))
            count = lengths.get(id(item), 0)
            memo[id(item)] = _widened(_last(rebuilt, count), self.lanes) if count else rebuilt
        result = memo[id(self.function)]
        assert isinstance(result, Function), "a function is rebuilt as a function"
        return result

    def _chains(self) -> list[list[Call]]:
        found = []
        for item in post_order(self.function):
            if isinstance(item, Call) and _can_widen(item, self.lanes):
                found.append(self._follow(item))
        return found

    def _follow(self, call: Call) -> list[Call]:
        chain = [call]
        while True:
            readers = self.users.get(id(chain[-1]), ())
            if len(readers) != 1 or not isinstance(readers[0], Call):
                return chain
            reader = readers[0]
            if not (is_call(reader, *_FOLLOW) or _adds_per_channel(reader, chain[-1])):
                return chain
            chain.append(reader)


def _last(end: Any, count: int) -> list[Call]:
    """The `count` calls of a chain that ends here, each the first argument of the next."""
    chain = [end]
    while len(chain) < count:
        chain.insert(0, chain[0].args[0])
    return chain


def _can_widen(call: Call, lanes: int) -> bool:
    if not is_call(call, "nn.conv2d") or not isinstance(call.args[1], Constant):
        return False
    attrs = call.attrs
    layouts = (attrs.data_layout, attrs.kernel_layout, attrs.out_layout or "NCHW")
    if attrs.groups != 1 or layouts != ("NCHW", "OIHW", "NCHW"):
        return False
    channels = int(call.args[1].data.shape[0])
    extra = -channels % lanes
    return 0 < extra <= WASTE * channels


def _adds_per_channel(reader: Call, value: Expr) -> bool:
    """add(value, constant of shape (C, 1, 1) or (1, C, 1, 1))."""
    if not is_call(reader, "add") or reader.args[0] is not value or not isinstance(reader.args[1], Constant):
        return False
    shape = (1, *reader.args[1].data.shape)[-4:]
    ty = tensor(value)
    assert ty is not None, "a convolution and what follows it give tensors"
    channels = ty.shape[1]
    return len(shape) == 4 and shape == (1, channels, 1, 1)


def _padded(data: np.ndarray[Any, Any], axis: int, extra: int) -> Constant:
    width = [(0, extra if i == axis else 0) for i in range(data.ndim)]
    return Constant(np.pad(data, width))


def _widened(chain: list[Call], lanes: int) -> Expr:
    """The chain over more channels, sliced back at its end."""
    conv: Any = chain[0]  # Any: a conv2d call with a constant weight, see _can_widen
    channels = conv.args[1].data.shape[0]
    extra = -channels % lanes
    attrs = {name: getattr(conv.attrs, name) for name in conv.attrs.__dataclass_fields__}
    attrs["channels"] = channels + extra
    weight = _padded(conv.args[1].data, 0, extra)
    value: Expr = Call(conv.op, (conv.args[0], weight), conv.op.make_attrs(named=attrs), conv.span)
    for call in chain[1:]:
        rest = call.args[1:]
        if is_call(call, "add"):
            data = call.args[1].data  # type: ignore[attr-defined]
            rest = (_padded(data, data.ndim - 3, extra),)
        value = Call(call.op, (value, *rest), call.attrs, call.span)
    ty = tensor(chain[-1])
    assert ty is not None, "a convolution and what follows it give tensors"
    end = list(ty.static)
    return get_op("strided_slice")(value, begin=[0] * len(end), end=end)
