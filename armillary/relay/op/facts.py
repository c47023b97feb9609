"""What passes may know of an operator besides its kind and its rules: facts, precision, layouts.

In: `state("nn.relu nn.leaky_relu", Fact.HOMOGENEOUS, precision=Precision.FOLLOW)` at the end of an operator's file.
Out: the fields `facts`, `precision`, `layout_follows` and `fast` of the records; `has` asks for a fact. Invariant: a
fact is about what an operator means, never about what a pass does with it; one that states nothing is left alone.
"""

from __future__ import annotations

import enum


class Fact(enum.Enum):
    """Facts of which an operator may state any number; "the data" is its first input."""

    VIEW = enum.auto()  # the data's elements in their order, in another shape
    REARRANGES = enum.auto()  # each of the data's elements once, maybe elsewhere; all that are VIEW
    PICKS = enum.auto()  # each element of the result is one of the data's; all that are REARRANGES
    ARITHMETIC = enum.auto()  # a number from two, element by element
    HOMOGENEOUS = enum.auto()  # f(s * x) is s * f(x) for s > 0
    LINEAR = enum.auto()  # f(s * x) is s * f(x) for all s
    LIKE = enum.auto()  # of the last input only the type matters
    DYNAMIC = enum.auto()  # some of its attributes are values
    TYPE_ONLY = enum.auto()  # the value follows from the type of the data
    FLAT = enum.auto()  # small steps of the inputs change nothing: every derivative is 0
    ORDER_ONLY = enum.auto()  # the value follows from the order of the data's elements
    DEQUANTIZES = enum.auto()  # (the data minus a number) times the second input
    VANISHES = enum.auto()  # normal numbers in may give subnormal ones


class Precision(enum.IntEnum):
    """What to-mixed-precision makes of an operator; the numbers are Relay's."""

    ALWAYS = 0  # a contraction: in the narrow type
    FOLLOW = 1  # in the narrow type where its inputs are
    NEVER = 2  # loses too much in it


class Follows(enum.Enum):
    """How an operator takes data in another layout; relay/transform/layout/_rules.py has the rule of each."""

    ASKED = enum.auto()  # it has attributes that name layouts, and takes what is asked for
    AXIS = enum.auto()  # one attribute names the axis of the channels
    SHUFFLE = enum.auto()  # where it only mixes groups of channels
    JOIN = enum.auto()
    PAD = enum.auto()
    SLICE = enum.auto()
    TAKE = enum.auto()
    REDUCTION = enum.auto()  # over whole axes
    POOL = enum.auto()  # windows over an image
