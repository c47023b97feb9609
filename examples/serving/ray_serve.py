"""A compiled network behind Ray Serve: replicas on every machine of a cluster, requests spread over them.

In: a package (`armc compile net.onnx -o net.tar`) that each machine can read, or a copy of it that Ray ships. Out: POST
of {"input": [[…]]} is answered with {"output": [[…]]}. Invariant: a replica opens the package once; single rows that
arrive together are one run.

    pip install "ray[serve]" armillary-runtime
    python ray_serve.py net.tar            # on the head of a cluster (`ray start --head`), or alone
"""

from __future__ import annotations

import sys
import tempfile
import time

import numpy as np
from ray import serve
from starlette.requests import Request

from armillary.runtime.session import InferenceSession

MOST_ROWS = 8  # of one run: the package is compiled for this batch


@serve.deployment(num_replicas=2, max_ongoing_requests=32, ray_actor_options={"num_cpus": 1})
class Network:
    """One replica; Ray starts as many as there are to be, on whichever machine has a CPU."""

    def __init__(self, package: bytes) -> None:
        with tempfile.NamedTemporaryFile(suffix=".tar") as file:
            file.write(package)
            file.flush()
            self.session = InferenceSession(file.name)
        self.name = self.session.get_inputs()[0].name

    @serve.batch(max_batch_size=MOST_ROWS, batch_wait_timeout_s=0.002)
    async def rows(self, rows: list[np.ndarray]) -> list[np.ndarray]:
        """The outputs for rows that came together."""
        batch = np.zeros((MOST_ROWS, *rows[0].shape), np.float32)
        batch[: len(rows)] = rows
        (outputs,) = self.session.run(None, {self.name: batch})[:1]
        return list(outputs[: len(rows)])

    async def __call__(self, request: Request) -> dict[str, object]:
        """One request."""
        row = np.asarray((await request.json())["input"], np.float32)
        return {"output": (await self.rows(row)).tolist()}


if __name__ == "__main__":
    with open(sys.argv[1], "rb") as file:
        serve.run(Network.bind(file.read()), route_prefix="/network")
    while True:
        time.sleep(3600)
