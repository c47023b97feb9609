"""Ready-made networks with random weights, and what tests of graphs use.

In: `relay.testing.<network>.get_workload(batch_size=…)`. Out: (IRModule, {parameter name: NDArray}); the input is
called "data". Modules: resnet, resnet_3d, vgg, mobilenet, squeezenet, inception_v3, densenet, mlp, dcgan, dqn, lstm
(networks), layers and init (their parts).
Invariant: the same arguments and seed give the same parameters.
"""

from __future__ import annotations

from armillary.base.lazy import lazy_names

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        name: f"{__name__}.{name}"
        for name in (
            "dcgan",
            "densenet",
            "dqn",
            "inception_v3",
            "init",
            "layers",
            "lstm",
            "mlp",
            "mobilenet",
            "nat",
            "resnet",
            "resnet_3d",
            "squeezenet",
            "synthetic",
            "temp_op_attr",
            "vgg",
        )
    }
    | {name: f"{__name__}.init:{name}" for name in ("Constant", "Initializer", "Xavier", "create_workload")}
    | {name: f"{__name__}.gradients:{name}" for name in ("check_grad", "count_ops")}
    | {name: f"{__name__}.nat:{name}" for name in ("add_nat_definitions", "count", "make_nat_expr", "make_nat_value")}
    | {"_np_randn_from_type": f"{__name__}.gradients:random_of_type"}
    | {name: f"{__name__}.running:{name}" for name in ("enabled_targets", "rand", "run_infer_type", "run_opt_pass")},
)
