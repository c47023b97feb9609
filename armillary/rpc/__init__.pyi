"""Names of `armillary.rpc` for type checkers. Written by tools/write_docs.py; do not edit."""

from armillary.rpc.client import LocalSession as LocalSession
from armillary.rpc.client import RPCSession as RPCSession
from armillary.rpc.launch import Server as Server
from armillary.rpc.launch import Tracker as Tracker
from armillary.rpc.client import TrackerSession as TrackerSession
from armillary.rpc.client import connect as connect
from armillary.rpc.client import connect_tracker as connect_tracker

__all__ = [
    "LocalSession",
    "RPCSession",
    "Server",
    "Tracker",
    "TrackerSession",
    "connect",
    "connect_tracker",
]
