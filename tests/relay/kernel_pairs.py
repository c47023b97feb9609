"""What tests of kernels with two contractions share: which contractions a kernel has, and running on 1 to 3 threads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import armillary
from armillary import relay
from armillary.contrib import graph_executor
from armillary.relay.expr import Call, Function
from armillary.relay.op import is_primitive
from armillary.relay.walk import post_order
from armillary.runtime.threads import config_threadpool
from armillary.target import Target
from armillary.transform import PassContext

Config = Mapping[str, Any]


def const(rng: np.random.Generator, *shape: int) -> Any:
    """Weights whose sums have the size of their inputs."""
    return relay.const((rng.standard_normal(shape) / np.sqrt(max(1, np.prod(shape[1:])))).astype("float32"))


def made_kernels(function: Function, target: Target, config: Config) -> list[Function]:
    """The kernels of a function after all passes that convolve or pool."""
    with PassContext(opt_level=3, config=dict(config)):
        main = relay.optimize(function, target)[0]["main"]
    made = [e.op for e in post_order(main) if isinstance(e, Call) and is_primitive(e.op)]
    return [kernel for kernel in made if contractions(kernel)]


def contractions(kernel: Function) -> list[str]:
    """Its convolutions and poolings."""
    calls = [e.op.name for e in post_order(kernel.body) if isinstance(e, Call)]  # type: ignore[attr-defined]
    return [name for name in calls if "conv2d" in name or "pool2d" in name]


def check_on_threads(
    function: Function, image: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], target: str, config: Config
) -> None:
    """1, 2 and 3 threads compute what is expected."""
    with PassContext(opt_level=3, config=dict(config)):
        library = relay.build(function, target=target)
    executor = graph_executor.GraphModule(library["default"](armillary.cpu()))
    try:
        for threads in (1, 2, 3):
            config_threadpool(0, threads)
            executor.run(x=image)
            np.testing.assert_allclose(executor.get_output(0).numpy(), expected, rtol=2e-4, atol=2e-4)
    finally:
        config_threadpool(0, 2)
