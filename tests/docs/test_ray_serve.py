"""examples/serving/ray_serve.py on a local cluster."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import socket
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from armillary.cli.main import main

if "CI" not in os.environ:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'ray[serve]'")
ray, serve = importlib.import_module("ray"), importlib.import_module("ray.serve")

EXAMPLE = Path(__file__).parents[2] / "examples" / "serving" / "ray_serve.py"


def test_replicas_answer_what_numpy_does(tmp_path: Path) -> None:
    weight = np.random.default_rng(0).standard_normal((16, 4)).astype(np.float32)
    node = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [8, s]) for n, s in (("x", 16), ("y", 4)))
    graph = helper.make_graph(node, "g", [x], [y], [numpy_helper.from_array(weight, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "n.onnx")
    assert main(["compile", str(tmp_path / "n.onnx"), "-o", str(tmp_path / "n.tar")]) == 0
    spec = importlib.util.spec_from_file_location("ray_serve", EXAMPLE)
    assert spec is not None and spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    sys.modules["ray_serve"] = example
    spec.loader.exec_module(example)
    ray.cloudpickle.register_pickle_by_value(example)
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        serve.run(example.Network.bind((tmp_path / "n.tar").read_bytes()), route_prefix="/network")
        rows = np.random.default_rng(1).standard_normal((40, 16)).astype(np.float32)

        def ask(row: np.ndarray) -> list[float]:
            body = json.dumps({"input": row.tolist()}).encode()
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/network", body, timeout=60) as response:
                return list(json.loads(response.read())["output"])

        with ThreadPoolExecutor(8) as pool:
            answers = np.array(list(pool.map(ask, rows)))
        np.testing.assert_allclose(answers, rows @ weight, rtol=1e-4, atol=1e-4)
    finally:
        serve.shutdown()
        ray.shutdown()
