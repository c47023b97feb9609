"""Products with a weight of 16-bit floats: whether kernels read it as it is, or as float32 that was made when loaded.

In: rows, and the bytes that are read between two uses of a weight; a CPU. Out: yes or no. Invariant: figures of the CPU
model alone.
User: relay/transform/narrow_weights.py.

A product of few rows waits for its weight: half the bytes take half the time. For each vector of it, and each tile of
rows that reads it again, a conversion (two operations with a load on x86, one of them on a port of multiply-adds) comes
in between. Little of the waiting hides behind the multiply-adds, so the times add up: 768 to 3072 on a Granite Rapids
takes 0.51 of the time with 1 row, 0.41 with 8, 0.6 with 16, 0.86 with 32, 1.02 with 64. From L2 it comes in time: the
steps of an LSTM with 256 units take 1.05.
"""

from __future__ import annotations

from armillary.target.cost import far_weights
from armillary.target.cpu import CpuModel

TILE_ROWS = 8  # as in schedules/cpu/dense.py
CONVERSION = 1.0  # operations on the ports of multiply-adds, for each vector
GAIN = 0.94  # of the time with float32, below which halves are read


def reads_halves(rows: int, between: int, cpu: CpuModel) -> bool:
    """Whether a product takes less time with a weight of halves.

    `between`: bytes, as float32, of all weights that are read until this one is again: those of the network, or this
    one alone where one step of a loop after another reads it.
    """
    vector, rate = cpu.vector_bits / 8, far_weights(cpu, between)
    if rate >= cpu.memory.l2:
        return False
    tiles = -(-rows // TILE_ROWS)
    multiply, convert = rows / cpu.fma_ports, tiles * CONVERSION / cpu.fma_ports
    return multiply + convert + vector / 2 / rate < GAIN * (multiply + vector / rate)
