"""What a function of a device does when it is called: launches of kernels, in order.

In: rows of the descriptor. Out: `LaunchRow`s, and their JSON. Invariant: an argument of a kernel is a tensor of the
function, in a buffer or an image, a part of its workspace, one of its vars, by number, or a number itself (of kernels
that launches of several sizes share), or, of kernels with asserts, where to say what they refuse and whose call it is;
numbers of groups and parts of a workspace may be expressions over vars, sizes of groups are known when the package is
made. The reader in C: `runtime/native/devices/arm_device.c`.
"""

from __future__ import annotations

from armillary.artifact.json_form import Reader
from armillary.base.record import record

MAX_SIZE = 1 << 42
_WIDTHS = {"tensor": 2, "image": 2, "workspace": 3, "var": 2, "number": 2, "status": 1, "call": 1}
Count = int | str  # a text: an expression over the function's vars
# ("tensor" or "image", k), ("workspace", offset, bytes), ("var", k), ("number", n), ("status",), ("call",)
KernelArg = tuple[str] | tuple[str, int] | tuple[str, Count, Count]


@record(slots=True)
class LaunchRow:
    """A kernel over `groups` work-groups of `items` work-items."""

    kernel: str
    args: tuple[KernelArg, ...]
    groups: tuple[Count, Count, Count]
    items: tuple[int, int, int]

    def to_json(self) -> dict[str, object]:
        """A row of a function's `launches`."""
        args = [list(arg) for arg in self.args]
        return {"kernel": self.kernel, "args": args, "groups": list(self.groups), "items": list(self.items)}


def read_launch(reader: Reader) -> LaunchRow:
    """A row of `launches`, checked."""
    args = tuple(_read_arg(arg) for arg in reader.get("args").elements())
    groups, items = (_read_sizes(reader.get(name), name) for name in ("groups", "items"))
    kernel = reader.get("kernel").identifier()
    return LaunchRow(kernel, args, groups, items)  # type: ignore[arg-type]  # items are numbers, see `_read_sizes`


def _read_arg(reader: Reader) -> KernelArg:
    kind, *numbers = reader.elements()
    name = kind.string()
    if _WIDTHS.get(name) != len(numbers) + 1:
        raise reader.error("is no argument of a kernel")
    values = [_read_count(number) if name == "workspace" else _read_size(number) for number in numbers]
    return (name, *values)  # type: ignore[return-value]  # as many as its kind has


def _read_sizes(reader: Reader, name: str) -> tuple[Count, Count, Count]:
    read = _read_count if name == "groups" else _read_size
    sizes = [read(size) for size in reader.elements()]
    if len(sizes) != 3:
        raise reader.error("must be three sizes")
    return sizes[0], sizes[1], sizes[2]


def _read_size(reader: Reader) -> int:
    return reader.integer(0, MAX_SIZE)


def _read_count(reader: Reader) -> Count:
    return reader.string() if isinstance(reader.value, str) else _read_size(reader)
