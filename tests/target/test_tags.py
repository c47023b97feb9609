"""GPUs by name, hosts and lists of targets, as scripts write them."""

from __future__ import annotations

import pytest

from armillary.errors import TargetError, UnsupportedError
from armillary.target import Target
from armillary.target.target import check_attributes


def test_a_chip_by_name_is_its_target_and_options_overrule_it():
    found = Target("nvidia/jetson-nano", {"kind": "llvm"})
    assert found.kind.name == "cuda" and found.attrs["arch"] == "sm_53" and found.attrs["registers_per_block"] == 32768
    assert found.host == Target("llvm") and Target("nvidia/nvidia-a100").l2_cache_size_bytes == 41943040
    assert Target("nvidia/nvidia-t4 -arch=sm_70").attrs["arch"] == "sm_70"
    with pytest.raises(TargetError, match="unknown target kind 'nvidia/abacus'"):
        Target("nvidia/abacus")
    with pytest.raises(UnsupportedError, match="nothing here generates code for target kind cuda"):
        check_attributes(found)


def test_attributes_of_vulkan_are_read():
    target = Target("vulkan -device_name='A name' --supports_float16=True")
    assert target.attrs["device_name"] == "A name" and target.attrs["supports_float16"] is True
    assert Target(str(target)) == target


def test_a_host_is_given_to_one_target_several_or_a_map():
    assert Target.canon_target_and_host(None) == (None, None)
    target, host = Target.canon_target_and_host("cuda", "llvm")
    assert target is not None and target.host == host == Target("llvm")
    several = Target.canon_multi_target_and_host({1: "llvm", 2: "cuda"}, "llvm")
    assert [t.kind.name for t in several] == ["llvm", "cuda"] and several[1].host == Target("llvm")
    assert len(Target.canon_multi_target_and_host({"kind": "llvm"})) == 1
    by_target, host = Target.canon_target_map_and_host({"cuda": 1, "llvm": 2}, "llvm")
    assert sorted(by_target.values()) == [1, 2] and all(t.host == host for t in by_target)
    with pytest.raises(AssertionError, match="Target host is not empty"):
        Target.canon_target_and_host(None, "llvm")


def test_errors_of_targets_are_value_errors_too():
    with pytest.raises(ValueError, match="must be a list of strings"):
        Target({"kind": "llvm", "libs": {"a": "b"}})
    assert Target("llvm -libs=cblas").libs == ["cblas"]
