"""What matrix products bring along: the candidates for each of their operators, in the order in which they are asked.

In: nothing. Out: `MANIFEST`. Invariant: importing it loads no tensor expression. When each applies: space_amx.py,
space_narrow.py, space_dots.py, space.py.
"""

from __future__ import annotations

from armillary.backends.candidate import Candidate
from armillary.backends.cpu.gemm import space, space_amx, space_dots, space_narrow
from armillary.backends.cpu.manifest import Manifest, TunedOperator

_TILES, _PRODUCT, _NARROW = space_amx.TILES, space.PRODUCT, space_narrow.explain
MANIFEST = Manifest(
    (
        Candidate("nn.contrib_dense_pack", "packed_tiles", space_amx.refuses, _TILES),
        Candidate("nn.contrib_dense_pack", "packed_tile", algorithm=_PRODUCT),
        Candidate("nn.contrib_dense_pack", "open_rows", algorithm=_PRODUCT, sizes="named"),
        Candidate("nn.dense", "packing_tiles_dense", space_amx.refuses, _TILES),
        Candidate("nn.dense", "narrow_dense", space_narrow.refuses, explain_rule=_NARROW),
        Candidate("nn.dense", "packing_words_dense", space_dots.refuses, _PRODUCT),
        Candidate("nn.dense", "packing_dense", space.refuses, _PRODUCT),
        Candidate("nn.matmul", "narrow_matmul", space_narrow.refuses, explain_rule=_NARROW),
        Candidate("nn.matmul", "packing_words_matmul", space_dots.refuses, _PRODUCT),
        Candidate("nn.matmul", "packing_matmul", space.refuses, _PRODUCT),
        Candidate("nn.batch_matmul", "packing_tiles", space_amx.refuses, _TILES),
        Candidate("nn.batch_matmul", "narrow_batch_matmul", space_narrow.refuses, explain_rule=_NARROW),
        Candidate("nn.batch_matmul", "packing_words_batch_matmul", space_dots.refuses, _PRODUCT),
        Candidate("nn.batch_matmul", "packing_batch_matmul", space.refuses, _PRODUCT),
        Candidate("nn.batch_matmul", "open_batch_matmul", space.open_batch_refuses, sizes="named"),
    ),
    tuned=(
        TunedOperator("nn.contrib_dense_pack", "dense_pack.cpu", _PRODUCT),
        TunedOperator("nn.dense", "dense.cpu", _PRODUCT),
        TunedOperator("nn.batch_matmul", "batch_matmul.cpu", _PRODUCT),
    ),
)
