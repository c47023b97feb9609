"""A package of hand-written kernels, servers, and a farm, for the tests of this folder. What they are: farm.py."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from pathlib import Path

import pytest
from farm import Farm, check_sanitizers, make_package, native_server
from sanitizers import SANITIZED

from armillary.contrib.cc import get_cc
from armillary.rpc.launch import Launched, Server
from armillary.runtime import build_native


@pytest.fixture(scope="session")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_package(tmp_path_factory.mktemp("net"), get_cc())


@pytest.fixture(scope="session")
def armrpc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The native server with the address and undefined-behaviour sanitizers."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if base.name.startswith("popen-") else base  # popen-…: one process of several
    path = shared / "armrpc-sanitized"
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the others wait for it
        return path if path.exists() else build_native.build_rpc_server(get_cc(), path, SANITIZED)


@pytest.fixture(scope="module", params=["python", "native"])
def server(request: pytest.FixtureRequest) -> Iterator[Launched]:
    """A server without a tracker, of each kind."""
    if request.param == "python":
        launched: Launched = Server(key="direct")
    else:
        launched = native_server([str(request.getfixturevalue("armrpc"))], "--key=direct")
    yield launched
    launched.terminate()
    check_sanitizers(launched)


@pytest.fixture
def farm() -> Iterator[Farm]:
    made = Farm()
    with made.stack:
        yield made
