"""Strides first, then padding; FLOOR unless CEIL is asked for, which is what Caffe does (text: "PadStrideInfo")."""

from armillary.compute import DimensionRoundingType, PadStrideInfo, Size2D

print(PadStrideInfo())  # stride_x = 1, stride_y = 1, pad_x = 0, pad_y = 0, round = FLOOR
floor, ceil = PadStrideInfo(2, 2, 0, 0), PadStrideInfo(2, 2, 0, 0, DimensionRoundingType.CEIL)
print(floor.stride(), floor.pad(), floor.round.name)
for info in (floor, ceil):
    print(info.round.name, "3x3 over 112x112 gives", info.scaled((112, 112), Size2D(3, 3)))

# Output:
# PadStrideInfo(strides (1, 1), padding (0, 0, 0, 0), FLOOR)
# (2, 2) (0, 0) FLOOR
# FLOOR 3x3 over 112x112 gives (55, 55)
# CEIL 3x3 over 112x112 gives (56, 56)
