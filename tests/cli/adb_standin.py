"""Stands in for adb and one phone: files go to a folder, shell commands run here, ports are those of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(os.environ["PHONE_ROOT"])
PROPERTIES = {"ro.product.model": "Stand-in", "ro.product.cpu.abi": "x86_64", "ro.build.version.release": "0"}


def here(path: str) -> Path:
    return ROOT / path.lstrip("/")


def main(words: list[str]) -> int:
    with (ROOT / "adb.log").open("a") as log:
        log.write(" ".join(words) + "\n")
    if words[:1] == ["-s"]:
        if words[1] not in os.environ["PHONES"].split():
            print(f"error: device '{words[1]}' not found", file=sys.stderr)
            return 1
        words = words[2:]
    if words[0] == "devices":
        print("List of devices attached")
        for serial in os.environ["PHONES"].split():
            print(f"{serial}\tdevice")
        print()
    elif words[0] == "push":
        copy = shutil.copytree if Path(words[1]).is_dir() else shutil.copyfile
        copy(words[1], here(words[2]))
    elif words[:2] == ["shell", "getprop"]:
        print(PROPERTIES[words[2]])
    elif words[0] == "shell":
        line = " ".join(words[1:]).replace("/data/local/tmp", str(here("/data/local/tmp")))
        return subprocess.run(["sh", "-c", line], check=False).returncode
    elif words[0] not in ("reverse", "forward"):
        print(f"adb: unknown command {words[0]}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
