"""Names of `armillary.relay.testing` for type checkers. Written by tools/write_docs.py; do not edit."""

from armillary.relay.testing.init import Constant as Constant
from armillary.relay.testing.init import Initializer as Initializer
from armillary.relay.testing.init import Xavier as Xavier
from armillary.relay.testing.gradients import random_of_type as _np_randn_from_type
from armillary.relay.testing.nat import add_nat_definitions as add_nat_definitions
from armillary.relay.testing.gradients import check_grad as check_grad
from armillary.relay.testing.nat import count as count
from armillary.relay.testing.gradients import count_ops as count_ops
from armillary.relay.testing.init import create_workload as create_workload
from armillary.relay.testing import dcgan as dcgan
from armillary.relay.testing import densenet as densenet
from armillary.relay.testing import dqn as dqn
from armillary.relay.testing.running import enabled_targets as enabled_targets
from armillary.relay.testing import inception_v3 as inception_v3
from armillary.relay.testing import init as init
from armillary.relay.testing import layers as layers
from armillary.relay.testing import lstm as lstm
from armillary.relay.testing.nat import make_nat_expr as make_nat_expr
from armillary.relay.testing.nat import make_nat_value as make_nat_value
from armillary.relay.testing import mlp as mlp
from armillary.relay.testing import mobilenet as mobilenet
from armillary.relay.testing import nat as nat
from armillary.relay.testing.running import rand as rand
from armillary.relay.testing import resnet as resnet
from armillary.relay.testing import resnet_3d as resnet_3d
from armillary.relay.testing.running import run_infer_type as run_infer_type
from armillary.relay.testing.running import run_opt_pass as run_opt_pass
from armillary.relay.testing import squeezenet as squeezenet
from armillary.relay.testing import synthetic as synthetic
from armillary.relay.testing import temp_op_attr as temp_op_attr
from armillary.relay.testing import vgg as vgg

__all__ = [
    "Constant",
    "Initializer",
    "Xavier",
    "add_nat_definitions",
    "check_grad",
    "count",
    "count_ops",
    "create_workload",
    "dcgan",
    "densenet",
    "dqn",
    "enabled_targets",
    "inception_v3",
    "init",
    "layers",
    "lstm",
    "make_nat_expr",
    "make_nat_value",
    "mlp",
    "mobilenet",
    "nat",
    "rand",
    "resnet",
    "resnet_3d",
    "run_infer_type",
    "run_opt_pass",
    "squeezenet",
    "synthetic",
    "temp_op_attr",
    "vgg",
]
