#!/usr/bin/env python3
"""The shell of the Adreno guide: `tests/scripts/ci.py adreno -i`, in the image that docker/build.sh ci_adreno makes.

In: adreno, and -i for a shell in the end. Out: build-adreno-target/ with what runs on a phone: armrun (rtvm of old),
armrpc (tvm_rpc), and, where ANDROID_NDK_HOME is set, libarmillary_runtime.so (libtvm_runtime.so). Phones are shared
with the host through its adb server. ADRENO_OPENCL, Qualcomm's SDK, is mounted where it is set.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
IMAGES = {"adreno": "ci_adreno"}
TARGET = "aarch64-linux-android28"
OUT = "build-adreno-target"


def steps() -> list[str]:
    """What is built for the phone, as commands of a shell."""
    commands = [
        f"mkdir -p {OUT}",
        f"armc build-runner --target {TARGET} -o {OUT}/armrun",
        f"armc build-runner --rpc-server --target {TARGET} -o {OUT}/armrpc",
    ]
    if ndk := os.environ.get("ANDROID_NDK_HOME"):
        compiler = f"{ndk}/toolchains/llvm/prebuilt/linux-x86_64/bin/{TARGET}-clang"
        commands.append(f"armc build-runtime --cross-compiler {compiler} -o {OUT}/sdk")
    return commands


def docker_command(image: str, interactive: bool) -> list[str]:
    """The call of docker: this checkout is its working folder, the host's network and adb server are its own."""
    mounted = [ROOT, *(Path(os.environ[n]) for n in ("ADRENO_OPENCL", "ANDROID_NDK_HOME") if os.environ.get(n))]
    options = [f"--volume={folder}:{folder}" for folder in mounted]
    options += [f"--env={n}" for n in ("ADRENO_OPENCL", "ANDROID_NDK_HOME") if os.environ.get(n)]
    options += ["--interactive", "--tty"] if interactive else []
    script = " && ".join([*steps(), "exec bash"] if interactive else steps())
    return ["docker", "run", "--rm", "--network=host", f"--workdir={ROOT}", *options, image, "bash", "-c", script]


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("what", choices=sorted(IMAGES))
    parser.add_argument("-i", "--interactive", action="store_true", help="open a shell when it is built")
    parser.add_argument("--docker-image", default="", help="another image than that of docker/build.sh")
    args = parser.parse_args()
    if shutil.which("docker") is None:
        print("ci.py: docker is not installed; without it: pip install 'armillary[cross]', then", file=sys.stderr)
        print("\n".join(f"  {step}" for step in steps()), file=sys.stderr)
        return 2
    command = docker_command(args.docker_image or IMAGES[args.what], args.interactive)
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
