"""What matrix products bring along: the candidates for each of their operators, in the order in which they are asked.

In: nothing. Out: `MANIFEST`. Invariant: importing it loads no tensor expression. When each applies: space_amx.py,
space_narrow.py, space_dots.py, space.py.
"""

from __future__ import annotations

from armillary.backends.cpu.gemm import space, space_amx, space_dots, space_narrow
from armillary.backends.cpu.manifest import Candidate, Manifest

MANIFEST = Manifest(
    (
        Candidate("nn.contrib_dense_pack", "byte_tiles", space_amx.refuses, space_amx.TILES),
        Candidate("nn.contrib_dense_pack", "packed_tile", algorithm=space.PRODUCT),
        Candidate("nn.dense", "packing_tiles_dense", space_amx.refuses, space_amx.TILES),
        Candidate("nn.dense", "narrow_dense", space_narrow.refuses),
        Candidate("nn.dense", "packing_words_dense", space_dots.refuses, space.PRODUCT),
        Candidate("nn.dense", "packing_dense", space.refuses, space.PRODUCT),
        Candidate("nn.batch_matmul", "packing_tiles", space_amx.refuses, space_amx.TILES),
        Candidate("nn.batch_matmul", "narrow_batch_matmul", space_narrow.refuses),
        Candidate("nn.batch_matmul", "packing_words_batch_matmul", space_dots.refuses, space.PRODUCT),
        Candidate("nn.batch_matmul", "packing_batch_matmul", space.refuses, space.PRODUCT),
    )
)
