"""What passes may know of an operator besides its kind and its rules: facts, precision, layouts.

In: `state("nn.relu nn.leaky_relu", Fact.HOMOGENEOUS, precision=Precision.FOLLOW)` at the end of an operator's file.
Out: the fields `facts`, `precision`, `layout_follows`, `layout_axes`, `fast`, `quantized` and `wider` of the records;
`has` asks for a fact. Invariant: a fact is about what an operator means, never about what a pass does with it; one that
states nothing is left alone.
"""

from __future__ import annotations

import enum

from armillary.base.record import record


class Fact(enum.Enum):
    """Facts of which an operator may state any number; "the data" is its first input."""

    VIEW = enum.auto()  # the data's elements in their order, in another shape
    REARRANGES = enum.auto()  # each of the data's elements once, maybe elsewhere; all that are VIEW
    PICKS = enum.auto()  # each element of the result is one of the data's; all that are REARRANGES
    ARITHMETIC = enum.auto()  # a number from two, element by element
    ADDITIVE = enum.auto()  # f(s * x, s * y) is s * f(x, y) for all s
    HOMOGENEOUS = enum.auto()  # f(s * x) is s * f(x) for s > 0
    LINEAR = enum.auto()  # f(s * x) is s * f(x) for all s
    LIKE = enum.auto()  # of the last input only the type matters
    DYNAMIC = enum.auto()  # some of its attributes are values
    TYPE_ONLY = enum.auto()  # the value follows from the type of the data
    FLAT = enum.auto()  # small steps of the inputs change nothing: every derivative is 0
    ORDER_ONLY = enum.auto()  # the value follows from the order of the data's elements
    DEQUANTIZES = enum.auto()  # (the data minus a number) times the second input
    ANY_VALUE = enum.auto()  # the data may be a tuple or a function; the result is what it is
    ENDS_KERNEL = enum.auto()  # its input, which is not computed in the kernel of its readers
    BINDS = enum.auto()  # its input becomes the value of the size in its attributes
    COMPARES = enum.auto()  # it computes nothing: a run compares the extents in its attributes
    RUNS_AFTER = enum.auto()  # the second input, computed once the first has been
    READS_NARROW = enum.auto()  # 16-bit floats of all inputs but the data are read as they lie in memory
    VANISHES = enum.auto()  # normal numbers in may give subnormal ones


class Precision(enum.IntEnum):
    """What to-mixed-precision makes of an operator; the numbers are Relay's."""

    ALWAYS = 0  # a contraction: in the narrow type
    FOLLOW = 1  # in the narrow type where its inputs are
    NEVER = 2  # loses too much in it


class Follows(enum.Enum):
    """How an operator takes data in another layout, by what its attributes say of axes.

    Each engine has rules of some: relay/transform/layout/_rules.py what back ends and libraries convert,
    ops/layout/_rules.py what scripts do. Without a rule an operator's kind says, or it reads its inputs as they were.
    """

    ANY = enum.auto()  # element by element
    ASKED = enum.auto()  # a contraction: attributes name its layouts, and it takes what is asked for
    DEFORMABLE = enum.auto()  # the same, with offsets beside the data
    ROWS = enum.auto()  # a dense layer
    POOL = enum.auto()  # windows over an image
    QUANTIZED_POOL = enum.auto()
    ENLARGED = enum.auto()  # rows and columns stay in place
    RESIZED = enum.auto()
    REGIONS = enum.auto()  # parts of images, which a second input names
    AXIS = enum.auto()  # one attribute names the axis of the channels
    NORMALIZED = enum.auto()  # the same, with factors and offsets along it
    BATCH_NORM = enum.auto()  # the same, with moments as further results
    QUANTIZED = enum.auto()  # scales and zero points along an axis
    REQUANTIZED = enum.auto()
    QUANTIZED_BINARY = enum.auto()
    STAYS = enum.auto()  # in the layout of before
    LENGTH = enum.auto()  # divided by the length along some axes
    JOIN = enum.auto()
    QUANTIZED_JOIN = enum.auto()
    SPLIT = enum.auto()
    TOPK = enum.auto()
    SHUFFLE = enum.auto()  # where it only mixes groups of channels
    TRANSPOSE = enum.auto()
    SQUEEZE = enum.auto()
    PAD = enum.auto()
    SLICE = enum.auto()
    SLICE_LIKE = enum.auto()
    TAKE = enum.auto()
    REDUCTION = enum.auto()  # a sum, a product, an extreme over whole axes
    STATISTIC = enum.auto()  # another result over axes


@record
class Axes:
    """In which layouts an operator can compute: any order of these axes of its data, and of its kernel ("": none).

    `kernels`: pairs of a layout of the data and the kernel's that goes with it by default.
    """

    data: str
    kernel: str = ""
    kernels: tuple[tuple[str, str], ...] = ()

    def kernel_of(self, data: str) -> str | None:
        """The kernel's layout that goes with one of the data; None where nothing is said."""
        return next((kernel for known, kernel in self.kernels if known == data), None)

    @property
    def of_inputs(self) -> tuple[str, ...]:
        """The axes of each layout that can be asked for."""
        return (self.data, self.kernel) if self.kernel else (self.data,)
