"""Products of 16-bit floats: whether kernels multiply bfloat16, and whether they read a narrow weight as it is.

In: sizes, and the bytes that are read between two uses of a weight; a CPU. Out: yes or no. Invariant: figures of the
CPU model alone. Users: backends/cpu/graph/_bf16_products.py, narrow_weights.py.
"""

from __future__ import annotations

from armillary.backends.cpu.conv2d.amx.cost import DEPTH, LOAD_CYCLES, SIDE
from armillary.backends.cpu.cost.model import weight_bandwidth
from armillary.target.cpu import MIN_TILE_ROWS, CpuModel

REGISTER_ROWS = 8  # of a register tile, as in backends/cpu/gemm/dense.py
CONVERSION = 1.0  # operations on the ports of multiply-adds, for each vector
SUMS_CYCLES = 60.0  # to store a tile of sums and to read it again
COPY_CYCLES = 4.0  # for each vector of the left side, where its terms fill no tile
GAIN = 0.94  # of the time with float32, below which bfloat16 is read


def multiplies_bfloat16(rows: int, columns: int, terms: int, cpu: CpuModel, is_packed: bool) -> bool:
    """Whether a product takes less time in bfloat16, of `rows` rows with a right-hand side.

    `is_packed`: whether that is a constant, which is packed when compiling. Else a copy of it is made in both types.
    With few rows it waits for its weight, which float32 kernels read in 16 bits, too. With more, matrix tiles take
    16 x 32 terms a cycle where two ports of 512 bits take 32. vdpbf16ps takes two terms a lane: twice the rate of FMAs
    on a Zen 4, half of it on Intel's server cores, where a product without tiles is one of float32.
    """
    if rows < MIN_TILE_ROWS or columns < cpu.lanes or not cpu.multiplies_bfloat16:
        return False
    in_float32 = rows * columns * terms / (cpu.fma_ports * cpu.lanes)
    if not cpu.has_bfloat16_tiles:
        return rows * columns * (-(-terms // 2) * 2) / cpu.bfloat16_dots_per_cycle < in_float32
    wide, tall, deep = -(-columns // SIDE), -(-rows // SIDE), DEPTH // 2  # tiles of columns and of rows, terms of one
    by_tiles = wide * -(-terms // deep) * (rows + LOAD_CYCLES * tall) + SUMS_CYCLES * tall * wide
    copied = 0 if is_packed and terms % deep == 0 else COPY_CYCLES * rows * terms / deep
    return by_tiles + copied < in_float32


def reads_bfloat16(rows: int, between: int, cpu: CpuModel) -> bool:
    """Whether a product takes less time with a weight of bfloat16.

    `between`: bytes, as float32, of all weights that are read until this one is again: those of the network, or this
    one alone where one step of a loop after another reads it.

    A product of few rows waits for its weight: half the bytes take half the time. For each vector of it, and each tile
    of rows that reads it again, a conversion (two operations with a load on x86, one of them on a port of
    multiply-adds) comes in between. Little of the waiting hides behind the multiply-adds, so the times add up.
    From L2 it comes in time.
    """
    vector, rate = cpu.vector_bits / 8, weight_bandwidth(cpu, between)
    if rate >= cpu.memory.l2:
        return False
    tiles = -(-rows // REGISTER_ROWS)
    multiply, convert = rows / cpu.fma_ports, tiles * CONVERSION / cpu.fma_ports
    return multiply + convert + vector / 2 / rate < GAIN * (multiply + vector / rate)
