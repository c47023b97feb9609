"""A worker that makes kernels: from the text of a fused function to what the cache keeps of it.

In: requests of `kernels.py`: name, text and cache key of a kernel, target, pass context. Out: the bytes of a
`CompiledKernel`. Invariant: what is answered is what the asking process would have compiled, for the key says so: it is
computed here anew, from this process's own sources, settings and CPU, and a request with another key is refused, as is
everything that fails here. Framing and life of the process: `codegen/workers/worker.py`.
"""

from __future__ import annotations

import ast

from armillary.base.json_types import JsonObject
from armillary.codegen.workers.worker import serve
from armillary.driver.kernel_code import compile_kernel
from armillary.driver.kernels import kernel_keys
from armillary.driver.program_codegen import Kernel
from armillary.errors import InternalError
from armillary.relay.expr import Function
from armillary.relay.parser import parse
from armillary.target import Target
from armillary.transform import PassContext


def main() -> int:
    """Serve requests on stdin and stdout."""
    return serve(_answer)


def _answer(request: JsonObject) -> bytes:  # Any: JSON
    try:
        return make(**request)
    except Exception as error:  # the asking process does it again, and raises what it meets
        raise ValueError(f"{type(error).__name__}: {error}") from None


def make(name: str, text: str, key: str, target: str, context: str) -> bytes:
    """The kernel of a request."""
    where, (opt_level, disabled, required, config) = Target(target), ast.literal_eval(context)
    with PassContext(opt_level, required, disabled, config=dict(config)):
        if kernel_keys([(name, text)], where) != [key]:
            raise InternalError(f"{name}: its key is another one in the worker")
        (function,) = parse(text).functions.values()
        assert isinstance(function, Function), "a kernel is a function"
        return compile_kernel(Kernel(name, function, text), where, jobs=1).to_bytes(where)
