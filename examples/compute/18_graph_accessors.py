"""Tensors of a graph and who fills and reads them; two targets in one graph (text: "Tensor and accessor")."""

from pathlib import Path

import numpy as np
from PIL import Image

from armillary.compute import CLScheduler, DataType, PoolingLayerInfo, PoolingType, TensorInfo, TensorShape
from armillary.compute.graph import (
    CaffePreproccessor,
    FlattenLayer,
    Graph,
    PoolingLayer,
    SoftmaxLayer,
    Target,
    Tensor,
    get_input_accessor,
    get_output_accessor,
)

Image.fromarray(np.full((8, 8, 3), (40, 20, 30), np.uint8)).save("photo.png")
Path("labels.txt").write_text("blue\ngreen\nred\n")
CLScheduler.get().default_init()
graph = Graph()
(
    graph
    << Target.CL
    << Tensor(
        TensorInfo(TensorShape(8, 8, 3, 1), 1, DataType.F32),
        get_input_accessor("photo.png", CaffePreproccessor((10.0, 10.0, 10.0), 0.1)),
    )
    << PoolingLayer(PoolingLayerInfo(PoolingType.AVG))
    << Target.NEON
    << FlattenLayer()
    << SoftmaxLayer()
    << Tensor(get_output_accessor("labels.txt", 2))
)
graph.run()
print([f"{stage.name} on {stage.target.name}" for stage in graph.pipeline()])

# Output:
# ---------- Top 2 predictions ----------
#
# 0.6652 - [id = 2], red
# 0.2447 - [id = 0], blue
# ['PoolingLayer on CL', 'copy to NEON on NEON', 'FlattenLayer on NEON', 'SoftmaxLayer on NEON']
