"""Which algorithms compute an operator on an OpenCL device, in the order in which they are asked.

In: the workload of a kernel's anchor. Out: the candidates of each contraction, which schedules are attached to
(backends/registry.py); the algorithms that a choice may name. Invariant: no tensor expression is imported. What can be
chosen: space.py, points.py. To add an algorithm: its name in space.py, a candidate here, a schedule.
"""

from __future__ import annotations

from armillary.backends.candidate import Candidate
from armillary.backends.opencl.gemm.convolution import convolved, direct_cycles, layout_objection, product_cycles
from armillary.backends.opencl.space import DEPTHWISE, DIRECT, PLAIN, PRODUCT, TEXELS, WINOGRAD, Algorithm
from armillary.backends.opencl.tiles import FLOATS, choose_depthwise_tile
from armillary.backends.workload import Workload
from armillary.errors import ConfigError
from armillary.relay.types import TensorType, tensor_fields
from armillary.target.choice import Choice, stored_choice
from armillary.target.texture import LAST_CHANNELS, PIXEL

BECOMES = {  # operators that passes turn an operator into, where its choice says so
    "nn.conv2d": ("opencl.conv2d_winograd", "nn.contrib_conv2d_NCHWc", "nn.contrib_depthwise_conv2d_NCHWc"),
}
LAST_KERNEL, LAST_DEPTHWISE_KERNEL = f"HWIO{PIXEL}o", f"HWOI{PIXEL}o"  # layouts of weights where channels lie last


def refuses_product(workload: Workload) -> str | None:
    """Why the product kernel does not compute a product."""
    fields = [field for ty in workload.types for field in tensor_fields(ty)]
    if any(str(field.dtype) not in FLOATS for field in fields):
        return "it is in neither float32 nor float16"
    return None if len(fields[0].shape) > 1 else "it is the product of a vector"


def refuses_convolution(workload: Workload) -> str | None:
    """Why the product kernel does not compute a convolution."""
    objection = refuses_direct(workload)
    if objection or stored_choice(workload).algorithm == PRODUCT.name:
        return objection
    types = (workload.tensor(0), workload.tensor(1), workload.result)
    if direct_cycles(*types, workload.attrs) < product_cycles(*types, workload.attrs):
        return "tiles of rows and columns of pixels are estimated to be faster"
    return None


def refuses_direct(workload: Workload) -> str | None:
    """Why tiles of pixels do not compute a convolution."""
    return "it has groups" if workload.attrs.groups != 1 else layout_objection(workload)


def refuses_depthwise(workload: Workload) -> str | None:
    """Why tiles do not compute a convolution of groups."""
    if workload.attrs.groups == 1:
        return "it has one group"
    if stored_choice(workload) and stored_choice(workload).algorithm != DEPTHWISE.name:
        return ""
    objection = layout_objection(workload)
    if objection or stored_choice(workload):
        return objection
    work = convolved(workload.tensor(1), workload.result, workload.attrs)
    return "plain loops are estimated to be faster" if choose_depthwise_tile(work) is None else None


def refuses_pixels(workload: Workload) -> str | None:
    """Why tensors are not of pixels of four numbers."""
    types = [t for t in workload.types if isinstance(t, TensorType)]
    if any(str(t.dtype) not in FLOATS for t in types):
        return "it is in neither float32 nor float16"
    return f"its blocks are not of {PIXEL} channels" if any(t.shape[-1] != PIXEL for t in types) else None


def refuses_last(workload: Workload) -> str | None:
    """Why a convolution is not of pixels whose channels lie last."""
    attrs = workload.attrs
    if attrs.data_layout != LAST_CHANNELS or attrs.out_layout not in ("", LAST_CHANNELS):
        return ""  # of other layouts nobody would ask
    message = refuses_pixels(workload)
    if message or attrs.kernel_layout not in (LAST_KERNEL, LAST_DEPTHWISE_KERNEL):
        return message or f"its weights are {attrs.kernel_layout}"
    data, weight = (t.static for t in workload.types[:2] if isinstance(t, TensorType))
    if attrs.kernel_layout == LAST_DEPTHWISE_KERNEL:
        return None if attrs.groups == data[3] * PIXEL == weight[2] * PIXEL else "its groups are of several channels"
    return None if not weight[2] % PIXEL and not weight[3] % attrs.groups else "its groups are not of whole blocks"


CANDIDATES = (
    Candidate("nn.conv2d", "conv2d_channels_last", refuses_last, TEXELS),
    Candidate("nn.conv2d", "conv2d_product", refuses_convolution, PRODUCT, sizes="any"),
    Candidate("nn.conv2d", "conv2d_tiled", refuses_direct, DIRECT),
    Candidate("nn.conv2d", "depthwise_tiled", refuses_depthwise, DEPTHWISE),
    Candidate("nn.conv2d", "generic_loops", algorithm=PLAIN, sizes="any"),
    Candidate("opencl.conv2d_winograd", "winograd", algorithm=WINOGRAD),
    Candidate("nn.contrib_conv2d_NCHWc", "conv2d_texels", refuses_pixels, TEXELS),
    Candidate("nn.contrib_depthwise_conv2d_NCHWc", "depthwise_texels", refuses_pixels, TEXELS),
    Candidate("opencl.dense_pixels", "dense_pixels", refuses_pixels),
    Candidate("nn.low_bit_dense", "low_bit_product", sizes="any"),
    Candidate("nn.narrow_dense", "low_bit_product", sizes="any"),
    Candidate("nn.dense", "product", refuses_product, PRODUCT, sizes="any"),
    Candidate("nn.dense", "generic_loops", algorithm=PLAIN, sizes="any"),
    Candidate("nn.batch_matmul", "product", refuses_product, PRODUCT, sizes="any"),
    Candidate("nn.batch_matmul", "generic_loops", algorithm=PLAIN, sizes="any"),
    Candidate("nn.matmul", "product", refuses_product, PRODUCT, sizes="any"),
)


def candidates_of(op: str) -> tuple[Candidate, ...]:
    """The candidates of an operator."""
    return tuple(candidate for candidate in CANDIDATES if candidate.op == op)


def algorithms_of(op: str) -> tuple[str, ...]:
    """The algorithms of an operator and of what passes turn it into, as choices name them."""
    algorithms = [c.algorithm for name in (op, *BECOMES.get(op, ())) for c in candidates_of(name)]
    return tuple(dict.fromkeys(algorithm.name for algorithm in algorithms if isinstance(algorithm, Algorithm)))


def check_algorithm(op: str, choice: Choice) -> None:
    """Refuse a choice of an algorithm that an operator does not have here."""
    known = algorithms_of(op)
    if choice and choice.algorithm not in known:
        message = f"{op}: the choice {choice.algorithm} does not fit: OpenCL devices have no such algorithm for it"
        raise ConfigError(message, hint=f"there are {', '.join(known)}" if known else "leave it out")
