"""Passes that scripts put together themselves, one after another."""

from __future__ import annotations

import numpy as np
import pytest

import armillary
from armillary import te, tir
from armillary.errors import ScheduleError, UnsupportedError
from armillary.tir.transform.scripts.blocks import ORDER
from armillary.tir.transform.scripts.modules import AT_BUILD


def _doubled() -> tuple[te.Schedule, list[te.Tensor]]:
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] * 2, name="B")
    return te.create_schedule(b.op), [a, b]


def test_a_function_of_functions_is_a_pass() -> None:
    module = armillary.lower(*_doubled(), name="twice")
    noted = tir.transform.Apply(lambda f: f.with_attr("seen", 1))(module)
    assert noted["twice"].attrs["seen"] == 1
    assert list(tir.transform.Filter(lambda f: f.get_attr("seen") == 1)(module)) == []
    assert list(tir.transform.Filter(lambda f: f.get_attr("seen") == 1)(noted)) == ["twice"]
    assert tir.transform.AnnotateEntryFunc()(module)["twice"].attrs["tir.is_entry_func"] is True


@pytest.mark.parametrize("name", AT_BUILD)
def test_what_happens_at_the_build_leaves_a_module(name: str) -> None:
    module = armillary.lower(*_doubled())
    assert getattr(tir.transform, name)()(module) is module


def test_a_chain_of_the_era_builds() -> None:
    schedule, args = _doubled()
    statement = te.schedule.ScheduleOps(schedule, te.schedule.InferBound(schedule.normalize()))
    function = te.schedule.SchedulePostProcToPrimFunc(args, statement, None).with_attr("global_symbol", "twice")
    module = armillary.IRModule({"twice": function})
    for name in ("VerifyMemory", "InferFragment", "MakePackedAPI", "LowerTVMBuiltin"):
        module = getattr(tir.transform, name)()(module)
    values = [armillary.nd.array(np.arange(8, dtype="float32")) for _ in range(2)]
    armillary.build(module, target="llvm")(*values)
    assert values[1].numpy().tolist() == [0, 2, 4, 6, 8, 10, 12, 14]


def _shared() -> armillary.IRModule:
    """A row read through shared memory by 32 work-items, each of which reads what another one loaded."""
    a = te.placeholder((64, 32), name="A")
    b = te.compute((64, 32), lambda i, j: a[i, 31 - j], name="B")
    s = te.create_schedule(b.op)
    row = s.cache_read(a, "shared", [b])
    s[b].bind(b.op.axis[0], te.thread_axis("blockIdx.x"))
    s[b].bind(b.op.axis[1], te.thread_axis("threadIdx.x"))
    s[row].compute_at(s[b], b.op.axis[0])
    s[row].bind(s[row].op.axis[1], te.thread_axis("threadIdx.x"))
    return armillary.lower(s, [a, b])


def test_thread_sync_puts_barriers_between_accesses_of_shared_memory() -> None:
    module = _shared()
    assert "thread_sync" not in str(module)
    synced = tir.transform.ThreadSync("shared")(module)
    assert str(synced).count("thread_sync") == 1
    assert tir.transform.ThreadSync("global")(module) is module
    with pytest.raises(UnsupportedError, match="ThreadSync of scope 'registers'"):
        tir.transform.ThreadSync("registers")


def test_a_store_of_the_host_is_refused_for_a_device() -> None:
    on_device = tir.transform.BindTarget(armillary.target.Target("opencl"))
    assert tir.transform.VerifyMemory()(on_device(_shared())) is not None
    with pytest.raises(ScheduleError, match="main: B is stored by the host of opencl"):
        tir.transform.VerifyMemory()(on_device(armillary.lower(*_doubled())))


def test_the_passes_over_blocks_are_seen_in_a_build() -> None:
    a = te.placeholder((8,), name="A")
    k = te.reduce_axis((0, 8), name="k")
    module = armillary.IRModule({"main": te.create_prim_func([a, te.compute((1,), lambda i: te.sum(a[k], axis=k))])})
    seen: list[str] = []
    with armillary.transform.PassContext(trace=lambda mod, info, before: seen.append(info.name) if before else None):
        armillary.lower(module)
    blocks = [make().info.name for make in ORDER]
    assert seen[: len(blocks)] == blocks and "tir.FlattenBuffer" in seen[len(blocks) :]
