"""The address of a tracker on the command line: "192.168.1.2:9190", or a host alone.

In: the text of `--rpc-tracker`. Out: host and port. Invariant: without a port it is 9090; without a text both are None.
"""

from __future__ import annotations

from armillary.rpc.programs import parse_address

PORT = 9090


def tracker_host_port_from_cli(rpc_tracker_str: str | None) -> tuple[str | None, int | None]:
    """Host and port of a tracker. Raises RPCError for a port that is none."""
    if not rpc_tracker_str:
        return None, None
    host, port = parse_address(rpc_tracker_str, PORT)
    return host, port
