"""GPUs by name, as scripts write them: `Target("nvidia/geforce-rtx-2080-ti")`.

In: a name. Out: the target it stands for, as a dictionary; None for a name that the table lacks. Invariant: facts only,
of the chips' data sheets; nothing here builds for these targets, a script only reads them (`absent.py`).
"""

from __future__ import annotations

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
_SECOND_LEVEL = {"geforce-rtx-4090": 75497472, "nvidia-a100": 41943040, "nvidia-h100": 52428800}
_MAKER = "nvidia/"


def tagged(name: str) -> dict[str, str | int] | None:
    """The target that a name stands for."""
    short = name.removeprefix(_MAKER)
    if not name.startswith(_MAKER) or short not in _CHIPS:
        return None
    arch, registers = _CHIPS[short]
    cache = {"l2_cache_size_bytes": _SECOND_LEVEL[short]} if short in _SECOND_LEVEL else {}
    return {"kind": "cuda", "tag": name, "arch": arch, "registers_per_block": registers, **_BLOCKS, **cache}
