"""A compiled kernel: machine code with what a library must know of it, as the cache keeps it and a worker answers.

In: a kernel's code, its row of a descriptor, notes. Out: bytes, and the kernel that such bytes hold. Invariant: reading
what was written gives the same kernel. Who compiles: `driver/kernel_code.py`; who asks: `driver/kernels.py`.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping

from armillary.artifact import Descriptor, FunctionRow
from armillary.base.record import record


@record
class CompiledKernel:
    """One kernel's machine code, its descriptor row, what it needs (C symbols, the processor), what is told of it."""

    row: FunctionRow
    code: bytes
    externs: tuple[str, ...]
    needs: tuple[str, ...]
    notes: Mapping[str, str]

    def to_bytes(self, target: object) -> bytes:
        """What the cache keeps and a worker answers."""
        descriptor = Descriptor(str(target), {self.row.name: self.row}, self.needs).to_json()
        head = json.dumps({"descriptor": descriptor, "externs": self.externs, "notes": dict(self.notes)}).encode()
        return struct.pack("<I", len(head)) + head + self.code

    @staticmethod
    def from_bytes(payload: bytes) -> CompiledKernel:
        """The kernel that `to_bytes` wrote."""
        (size,) = struct.unpack_from("<I", payload)
        head = json.loads(payload[4 : 4 + size])
        descriptor = Descriptor.from_json(head["descriptor"])
        (row,) = descriptor.functions.values()
        return CompiledKernel(row, payload[4 + size :], tuple(head["externs"]), descriptor.needs, head["notes"])
