"""Chips and boards by name, as scripts write them: `Target("nvidia/geforce-rtx-2080-ti")`.

In: a name. Out: the target it stands for, as a dictionary; None for a name that the table lacks. Invariant: facts only,
of the chips' data sheets and of scripts (`register_tag`); what is built for NVIDIA's chips: nothing (`absent.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

from armillary.base.boundary import boundary
from armillary.errors import TargetError

_BLOCKS = {"max_shared_memory_per_block": 49152, "max_threads_per_block": 1024, "thread_warp_size": 32}
_LARGE, _SMALL = 65536, 32768  # registers of a block
_CHIPS: dict[str, tuple[str, int]] = {
    "geforce-gtx-1060": ("sm_61", _LARGE),
    "geforce-gtx-1070": ("sm_61", _LARGE),
    "geforce-gtx-1080": ("sm_61", _LARGE),
    "geforce-gtx-1080-ti": ("sm_61", _LARGE),
    "geforce-rtx-2060": ("sm_75", _LARGE),
    "geforce-rtx-2070": ("sm_75", _LARGE),
    "geforce-rtx-2080": ("sm_75", _LARGE),
    "geforce-rtx-2080-ti": ("sm_75", _LARGE),
    "geforce-rtx-3070": ("sm_86", _LARGE),
    "geforce-rtx-3080": ("sm_86", _LARGE),
    "geforce-rtx-3090": ("sm_86", _LARGE),
    "geforce-rtx-4090": ("sm_89", _LARGE),
    "jetson-nano": ("sm_53", _SMALL),
    "jetson-tx2": ("sm_62", _SMALL),
    "jetson-agx-xavier": ("sm_72", _LARGE),
    "jetson-agx-orin-32gb": ("sm_87", _LARGE),
    "jetson-agx-orin-64gb": ("sm_87", _LARGE),
    "nvidia-a10": ("sm_86", _LARGE),
    "nvidia-a100": ("sm_80", _LARGE),
    "nvidia-h100": ("sm_90", _LARGE),
    "nvidia-t4": ("sm_75", _LARGE),
    "nvidia-v100": ("sm_70", _LARGE),
    "tesla-k80": ("sm_37", _LARGE),
    "tesla-p100": ("sm_60", _LARGE),
}
_RASPBERRY = {"4b-aarch64": ("cortex-a72", "bcm2711"), "5-aarch64": ("cortex-a76", "bcm2712")}
_SECOND_LEVEL = {"geforce-rtx-4090": 75497472, "nvidia-a100": 41943040, "nvidia-h100": 52428800}
_MAKER = "nvidia/"


def _raspberry(board: tuple[str, str]) -> dict[str, object]:
    cpu, model = board
    neon = {"keys": ["arm_cpu", "cpu"], "device": "arm_cpu", "mattr": ["+neon"]}
    return {"kind": "llvm", **neon, "mtriple": "aarch64-linux-gnu", "mcpu": cpu, "model": model}


_OTHERS: dict[str, Mapping[str, object]] = {
    **{f"raspberry-pi/{name}": _raspberry(board) for name, board in _RASPBERRY.items()},
}


def list_tags() -> dict[str, dict[str, object]]:
    """Every name that stands for a target, with the target as a dictionary."""
    names = sorted([*_OTHERS, *(_MAKER + chip for chip in _CHIPS)])
    return {name: tagged(name) or {} for name in names}


@boundary("register_tag", arguments=True)
def register_tag(name: str, config: Mapping[str, object], override: bool = False) -> Mapping[str, object]:
    """Let a name with a slash stand for a target, given as a dictionary."""
    if "/" not in name or "kind" not in config:
        raise TargetError(f"register_tag: got {name!r} for {dict(config)!r}", hint='wanted "maker/chip" and a "kind"')
    if tagged(name) is not None and not override:
        raise TargetError(f"register_tag: {name!r} stands for a target already", hint="override=True replaces it")
    _OTHERS[name] = {**config, "tag": name}
    return _OTHERS[name]


def tagged(name: str) -> dict[str, object] | None:
    """The target that a name stands for."""
    if name in _OTHERS:
        return dict(_OTHERS[name])
    short = name.removeprefix(_MAKER)
    if not name.startswith(_MAKER) or short not in _CHIPS:
        return None
    arch, registers = _CHIPS[short]
    cache = {"l2_cache_size_bytes": _SECOND_LEVEL[short]} if short in _SECOND_LEVEL else {}
    return {"kind": "cuda", "tag": name, "arch": arch, "registers_per_block": registers, **_BLOCKS, **cache}
