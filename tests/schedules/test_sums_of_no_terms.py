"""Products whose sums have no terms are built for every processor, those with matrix tiles too."""

from __future__ import annotations

import numpy as np
import pytest

from armillary import IRModule, relay
from armillary.transform import PassContext


@pytest.mark.parametrize("cpu", ["sapphirerapids", "znver4", "haswell", "cortex-a72"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "float32"])
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("batches", [(), (2,)])
def test_a_product_of_no_terms_is_built(cpu: str, dtype: str, constant: bool, batches: tuple[int, ...]) -> None:
    other = "int8" if dtype == "uint8" else dtype
    result = "int32" if dtype != "float32" else dtype
    rows, columns = (*batches, 33, 0), (*batches, 64, 0)
    a, b = relay.var("a", shape=rows, dtype=dtype), relay.var("b", shape=columns, dtype=other)
    product = relay.nn.batch_matmul if batches else relay.nn.dense
    module = IRModule.from_expr(relay.Function([a, b], product(a, b, out_dtype=result)))
    target = f"llvm -mtriple=aarch64-linux-gnu -mcpu={cpu}" if cpu.startswith("cortex") else f"llvm -mcpu={cpu}"
    with PassContext(opt_level=3):
        built = relay.build(module, target, params={"b": np.zeros(columns, other)} if constant else None)
    assert built.get_graph_json()
