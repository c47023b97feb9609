"""Running on other machines: trackers that lend devices, servers, sessions.

In: addresses, keys, packages. Out: sessions on devices, with the surface of the local runtime. Invariant: imports
`runtime` and the rows below it only; nothing of the compiler. The protocol: `protocol.py`; client, tracker, server:
the files of these names; the programs: `armillary/exec`.
"""

from __future__ import annotations

from armillary.base.lazy import lazy_names

_TABLE = {
    "LocalSession": "armillary.rpc.client:LocalSession",
    "RPCSession": "armillary.rpc.client:RPCSession",
    "Server": "armillary.rpc.launch:Server",
    "Tracker": "armillary.rpc.launch:Tracker",
    "TrackerSession": "armillary.rpc.client:TrackerSession",
    "connect": "armillary.rpc.client:connect",
    "connect_tracker": "armillary.rpc.client:connect_tracker",
}

__getattr__, __dir__ = lazy_names(__name__, _TABLE)
