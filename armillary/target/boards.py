"""Arm boards and phones by name: what a target of each has, as text of a target string.

In: a model name, or the device of a target string. Out: options, or why there are none. Invariant: facts only. What can
run no package of ours (microcontrollers have no operating system to load one) is refused by name, never built for
another machine. Used by `grammar.py` (`-device=rasp4b`) and `devices.py` (`arm_cpu("rasp4b")`).
"""

from __future__ import annotations

import re

from armillary.errors import UnsupportedError

_ANDROID64 = "-mtriple=arm64-linux-android -mattr=+neon"
_KIRIN970 = f"-model=kirin970 {_ANDROID64}"
_HARD_FLOAT = "-mtriple=armv7a-linux-gnueabihf -mattr=+neon,+vfp4,+thumb2"
BOARDS: dict[str, str] = {
    "pixel2": f"-model=snapdragon835 {_ANDROID64}",
    **dict.fromkeys(("mate10", "mate10pro", "p20", "p20pro"), _KIRIN970),
    "mi10": f"-model=snapdragon865 {_ANDROID64} -mcpu=cortex-a77",
    "rasp3b": "-model=bcm2837 -mtriple=armv7l-linux-gnueabihf -mattr=+neon",
    "rasp4b": "-model=bcm2711 -mtriple=armv8l-linux-gnueabihf -mattr=+neon -mcpu=cortex-a72",
    "rasp4b64": "-model=bcm2711 -mtriple=aarch64-linux-gnu -mattr=+neon -mcpu=cortex-a72",
    "rasp5b64": "-model=bcm2712 -mtriple=aarch64-linux-gnu -mattr=+neon -mcpu=cortex-a76",
    "rk3588": "-model=rk3588 -mtriple=aarch64-linux-gnu -mattr=+neon -mcpu=cortex-a76",
    "rk3399": "-model=rk3399 -mtriple=aarch64-linux-gnu -mattr=+neon",
    "pynq": "-model=pynq -mtriple=armv7a-linux-eabi -mattr=+neon",
    "ultra96": "-model=ultra96 -mtriple=aarch64-linux-gnu -mattr=+neon",
    "beagleai": f"-model=beagleai {_HARD_FLOAT} -mcpu=cortex-a15",
    "stm32mp1": f"-model=stm32mp1 {_HARD_FLOAT} -mcpu=cortex-a7",
    "thunderx": "-model=thunderx -mtriple=aarch64-linux-gnu -mattr=+neon,+crc,+lse -mcpu=thunderxt88",
}
_MICRO = re.compile(r"stm32(?!mp)|nrf5|nucleo|mps[23]|sam[de]\d|cortex-m|imxrt|esp32|rp2040|zephyr|arduino", re.ASCII)


def board_options(model: str) -> str | None:
    """The options of a board; None for a name that the table lacks. UnsupportedError for a microcontroller."""
    if _MICRO.match(model.lower()):
        raise UnsupportedError(
            f"{model} is a microcontroller: packages need Linux or Android, and threads",
            hint="compile the C source of `build(..., target='c')` with the board's own tools",
        )
    return BOARDS.get(model)
