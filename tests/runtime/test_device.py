"""Devices of the runtime: tensors in the memory of an OpenCL device, and what is refused."""

import time

import numpy as np
import pytest
from opencl_device import needs_opencl

import armillary
from armillary.errors import TargetError, TypeMismatch
from armillary.runtime.ndarray import NDArray

pytestmark = needs_opencl
VALUES = np.arange(12, dtype="float32").reshape(3, 4)


def test_a_device_tells_its_name_and_driver():
    facts = armillary.opencl(0).facts()
    assert armillary.device("opencl", 0).exist and facts["name"] and facts["driver"] and int(facts["units"]) > 0


def test_values_go_to_the_device_and_come_back():
    there = armillary.nd.array(VALUES, armillary.cl())
    assert there.shape == (3, 4) and there.dtype == "float32" and there.device == armillary.cl()
    np.testing.assert_array_equal(there.numpy(), VALUES)
    np.testing.assert_array_equal(there.copyto(armillary.cpu()).numpy(), VALUES)


def test_a_copy_inside_the_device_and_an_assignment_do_not_change_the_source():
    there = armillary.nd.array(VALUES, armillary.cl())
    other = there.copyto(armillary.nd.empty((3, 4), "float32", armillary.cl()))
    other[1, 2] = 99
    assert other[1, 2] == 99 and other.numpy()[0, 0] == 0
    np.testing.assert_array_equal(there.numpy(), VALUES)


def test_tensors_without_elements_and_scalars_live_on_a_device():
    assert armillary.nd.empty((0, 4), "int64", armillary.cl()).numpy().shape == (0, 4)
    assert armillary.nd.array(np.float16(3), armillary.cl()).numpy() == 3


def test_memory_that_numpy_may_not_share_is_refused():
    there = armillary.nd.array(VALUES, armillary.cl())
    with pytest.raises(BufferError, match="DLPack cannot share"):
        np.from_dlpack(there)
    with pytest.raises(TypeMismatch, match="wraps memory of the host"):
        NDArray(VALUES, device=armillary.cl())
    with pytest.raises(ValueError, match="read-only"):
        there.memory[0] = 1


def test_a_device_that_is_not_there_says_why():
    assert not armillary.cl(15).exist
    with pytest.raises(TargetError, match="there is no device 15"):
        armillary.nd.empty((1,), "float32", armillary.cl(15))


@pytest.mark.parametrize("number", ["?", 1.5, 1 << 40])
def test_what_is_no_number_is_a_value_error(number: object) -> None:
    with pytest.raises(ValueError, match="a device's number is"):
        armillary.device("cpu", dev_id=number)  # type: ignore[arg-type]


def test_a_device_times_its_kernels_by_its_own_clock():
    data = armillary.relay.var("x", shape=(256, 256))
    library = armillary.relay.build(armillary.relay.Function([data], armillary.relay.exp(data)), "opencl")
    graph = armillary.contrib.graph_executor.GraphModule(library["default"](armillary.cl()))
    graph.set_input("x", np.ones((256, 256), "float32"))
    start = time.perf_counter()
    found = armillary.cl().kernel_seconds(graph.run)
    assert found is not None and 0 < found < time.perf_counter() - start
    assert armillary.cl().kernel_seconds(lambda: None) == 0
    assert armillary.cpu().kernel_seconds(graph.run) is None


def test_the_clock_stops_when_what_is_timed_fails():
    with pytest.raises(ZeroDivisionError):
        armillary.cl().kernel_seconds(lambda: 1 // 0)
    assert armillary.cl().kernel_seconds(lambda: None) == 0
