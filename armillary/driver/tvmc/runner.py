"""Running a package: `tvmc.run`.

In: a TVMCPackage, a device's name, perhaps a tracker or a server, arrays by input name. Out: a TVMCResult. Invariant:
with a host the package runs there, in a session that ends with the call; other inputs are filled as `fill_mode` says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np

from armillary.base.aliases import Array
from armillary.base.boundary import boundary
from armillary.base.dtype import DType
from armillary.base.lazy import deferred
from armillary.cli._console import output
from armillary.cli.run import FILLS, generated_input, loaded, profile_table
from armillary.driver.tvmc.model import TVMCPackage, TVMCResult
from armillary.errors import ConfigError
from armillary.rpc.client import RPCSession

with deferred():
    from armillary.rpc.client import connect, connect_tracker

SERVER_PORT, TRACKER_PORT, SECONDS = 9090, 9190, 1000


@boundary("tvmc.run")
def run(
    tvmc_package: TVMCPackage,
    device: str,
    hostname: str | None = None,
    port: int | str | None = None,
    rpc_key: str | None = None,
    inputs: Mapping[str, Array] | None = None,
    fill_mode: str = "random",
    benchmark: bool = False,
    repeat: int = 10,
    number: int = 10,
    profile: bool = False,
    end_to_end: bool = False,
    options: Mapping[str, object] | None = None,
) -> TVMCResult:
    """Run on "cpu", "cl"…, here or, with a host, there: a device of a tracker (port 9190) that has `rpc_key`, or
    without a key a server (port 9090). `benchmark` times it, `profile` prints the time of each kernel."""
    if options:
        raise ConfigError("options: a micro project has some, a package has none", hint="leave it out")
    if fill_mode not in FILLS:
        raise ConfigError(f"fill_mode {fill_mode!r} is unknown", hint=f"it may be any of {', '.join(FILLS)}")
    with _session(hostname, port, rpc_key) as session:
        module = loaded(tvmc_package.package_path, device, session, dict(inputs or {}), fill_mode)
        times = (
            module.module.benchmark(module.where, repeat=repeat, number=number, end_to_end=end_to_end)
            if benchmark
            else None
        )
        module.module.run()
        outputs = {f"output_{k}": module.module.get_output(k).numpy() for k in range(module.module.get_num_outputs())}
        if profile:
            output.print(profile_table(module.executor))
    return TVMCResult(outputs, times)


def generate_tensor_data(shape: Sequence[int], dtype: str, fill_mode: str) -> Array:
    """An array of zeros, of ones, or of random numbers. Raises ConfigError for another `fill_mode`."""
    if fill_mode not in FILLS:
        raise ConfigError(f"fill_mode {fill_mode!r} is unknown", hint=f"it may be any of {', '.join(FILLS)}")
    return generated_input(shape, DType(dtype), fill_mode, np.random.default_rng())


def _session(host: str | None, port: int | str | None, key: str | None) -> AbstractContextManager[RPCSession | None]:
    if not host:
        if key:
            raise ConfigError("rpc_key needs the tracker's address", hint='hostname="127.0.0.1", port=9190')
        return nullcontext()
    if not key:
        return connect(host, int(port or SERVER_PORT), session_timeout=SECONDS)
    return connect_tracker(host, int(port or TRACKER_PORT)).request(key, session_timeout=SECONDS)
