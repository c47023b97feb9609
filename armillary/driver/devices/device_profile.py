"""Measure a graph on a device kernel by kernel, by the device's own clock.

In: a graph executor on a device with its inputs set, its graph JSON, the device's roof (`device_roof.py`). Out: a
`DeviceProfile`: for each call of a kernel the median time, arithmetic, bytes, the least time of the roof, and where its
tensors lie: in a buffer or a texture, in which layout. Invariant: kernels run alone, one after another, so gaps between
launches are in the time of an inference and in no kernel; what runs when the network is loaded is left out. Bytes count
each tensor once. CPUs: driver/profile.py.
"""

from __future__ import annotations

import statistics

from armillary.artifact import GraphSpec, tensor_bytes
from armillary.base.record import record
from armillary.driver.devices.device_roof import DeviceRoof
from armillary.driver.explain import read_attrs
from armillary.driver.profile import bound_shapes
from armillary.runtime import GraphExecutor
from armillary.target.texture import BUFFER, LAST_CHANNELS, NHWC, PIXEL, TEXTURE, is_texture

IMAGE_AXES = 5  # of images in blocks
LAYOUTS = {
    IMAGE_AXES: f"NCHW{PIXEL}c",
    6: f"OIHW{PIXEL}i{PIXEL}o",
}  # of tensors in blocks of four, by the number of axes


@record(slots=True)
class DeviceKernel:
    """One call: its place in the graph, seconds, operations, bytes, and its tensors, the results last."""

    index: int
    name: str
    function: str
    seconds: float
    flops: int
    nbytes: int
    tensors: tuple[str, ...]
    least: float
    bound: str

    @property
    def percent(self) -> float:
        """Of the roof."""
        return 100 * self.least / self.seconds if self.seconds else 0.0

    @property
    def gflops(self) -> float:
        return self.flops / self.seconds / 1e9 if self.seconds else 0.0

    @property
    def gbytes(self) -> float:
        """The bytes that the kernel moves in a second, in GB/s."""
        return self.nbytes / self.seconds / 1e9 if self.seconds else 0.0


@record(slots=True)
class DeviceProfile:
    """A measured network: kernels in order, the median time of a whole inference, the device."""

    kernels: tuple[DeviceKernel, ...]
    seconds: float
    runs: int
    device: str
    roof: DeviceRoof

    @property
    def in_kernels(self) -> float:
        """Seconds of all kernels together."""
        return sum(kernel.seconds for kernel in self.kernels)

    @property
    def percent(self) -> float:
        """Of the roof that all kernels together reach."""
        return 100 * sum(k.least for k in self.kernels) / self.in_kernels if self.in_kernels else 0.0

    def to_plain(self) -> dict[str, object]:
        """As JSON values; times in milliseconds."""
        rows = [
            {
                "index": k.index,
                "name": k.name,
                "function": k.function,
                "ms": 1e3 * k.seconds,
                "share": k.seconds / (self.in_kernels or 1.0),
                "gflops": k.gflops,
                "gbytes_per_s": k.gbytes,
                "flops": k.flops,
                "bytes": k.nbytes,
                "percent_of_roof": k.percent,
                "bound": k.bound,
                "tensors": list(k.tensors),
            }
            for k in self.kernels
        ]
        total = {"ms": 1e3 * self.seconds, "in_kernels_ms": 1e3 * self.in_kernels, "percent_of_roof": self.percent}
        names = ("gflops", "memory", "cache", "texture_memory", "texture_cache")
        roof = {name: getattr(self.roof, name) for name in names}
        return {"device": self.device, "runs": self.runs, "roof": roof, "total": total, "kernels": rows}


def profile_device(executor: GraphExecutor, graph_json: str, roof: DeviceRoof, runs: int = 20) -> DeviceProfile:
    """Run the graph `runs` times with a time for each kernel, and as often without; inputs must be set."""
    spec = GraphSpec.from_json(graph_json)
    executor.run()
    wholes = [executor.time(1) for _ in range(runs)]
    measured = [executor.run_nodes(0, executor.num_nodes()) for _ in range(runs)]
    rows, shapes = [], bound_shapes(spec, executor)
    for index, node in enumerate(spec.nodes):
        if node.op == "null" or node.func_name.startswith("__") or node.is_load_time:
            continue
        seconds = statistics.median(run[index].seconds for run in measured)
        entries = [spec.entry(n, o) for n, o, _ in node.inputs]
        entries += range(spec.entry(index), spec.entry(index) + node.num_outputs)
        sizes = {e: tensor_bytes(shapes[e], spec.dltypes[e]) for e in entries}
        nbytes = sum(sizes.values())
        in_textures = sum(size for e, size in sizes.items() if is_texture(scope_of(spec, e)))
        message = tuple(tensor_text(spec, entry) for entry in entries)
        flops = read_attrs(node.attrs).flops
        rows.append(
            DeviceKernel(
                *(index, node.name, node.func_name, seconds, flops, nbytes, message),
                *roof.seconds(flops, nbytes, in_textures),
            )
        )
    return DeviceProfile(tuple(rows), statistics.median(wholes), runs, roof.device, roof)


def tensor_text(spec: GraphSpec, entry: int) -> str:
    """Memory, shape and, of tensors in blocks, layout: "texture 1x16x56x56x4 NCHW4c"."""
    shape, scope = spec.shapes[entry], scope_of(spec, entry)
    memory = "buffer" if scope == BUFFER else scope.removeprefix(f"{BUFFER}.")
    layout = LAYOUTS.get(len(shape), "") if shape and shape[-1] == PIXEL else ""
    if layout == LAYOUTS[IMAGE_AXES] and _is_channels_last(spec):
        layout = LAST_CHANNELS if entry in _computed(spec) else ""  # of weights there are several
    return " ".join(filter(None, (memory, "x".join(map(str, shape)) or "scalar", layout)))


def scope_of(spec: GraphSpec, entry: int) -> str:
    """Where a tensor lies."""
    return spec.storage_scopes[entry] if spec.storage_scopes else BUFFER


def has_textures(graph_json: str) -> bool:
    """Whether a network keeps tensors in textures."""
    return any(map(is_texture, GraphSpec.from_json(graph_json).storage_scopes or ()))


def _computed(spec: GraphSpec) -> set[int]:
    """The entries that kernels give."""
    nodes = ((n, node) for n, node in enumerate(spec.nodes) if node.op != "null")
    return {spec.entry(n, o) for n, node in nodes for o in range(node.num_outputs)}


def _is_channels_last(spec: GraphSpec) -> bool:
    """Whether images that kernels give lie as those of NHWC4c do."""
    scopes = spec.storage_scopes or ()
    scopes_of_images = {scopes[e] for e in _computed(spec) if e < len(scopes) and len(spec.shapes[e]) == IMAGE_AXES}
    return NHWC in scopes_of_images and TEXTURE not in scopes_of_images
