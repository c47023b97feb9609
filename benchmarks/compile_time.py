"""How long compiling takes: cold (no kernel cache) and from the cache, each in a fresh process.

In: ONNX files, or nothing for the small networks that come with the onnx package. Out: a table of seconds, best of
`--repeat`: of a whole `armc compile` process, cold and warm, and of `from_onnx` and `relay.build` in a script (warm;
without the imports). Invariant: cold runs share nothing; the cache of the warm runs lives in a temporary folder; Python
may keep its byte code (compiling our sources takes 0.4 s of a process that may not).

    python benchmarks/compile_time.py
    python benchmarks/compile_time.py resnet18.onnx --repeat 3
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import onnx
from models import add_arguments, models_of
from processes import count

_LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
_SCRIPT = """
import sys, time
import armillary, armillary.frontend.onnx.walk, onnx
from armillary import relay
relay.build
start = time.perf_counter()
module, params = relay.frontend.from_onnx(sys.argv[1])
with armillary.transform.PassContext(opt_level=3):
    relay.build(module, target="llvm -mcpu=native", params=params)
print(time.perf_counter() - start)
"""
_DEFAULT = ("light_squeezenet", "light_shufflenet", "light_resnet50")


def compile_once(model: Path, folder: Path, cache: bool) -> float:
    """Seconds of one `armc compile` process, interpreter start included."""
    command = [sys.executable, "-m", "armillary.cli", "compile", str(model), "-o", str(folder / "out.so")]
    start = time.perf_counter()
    _output(command, folder, cache)
    return time.perf_counter() - start


def build_once(model: Path, folder: Path) -> float:
    """Seconds of importing and building in a script of its own, with the cache."""
    command = [sys.executable, "-c", _SCRIPT, str(model)]
    return float(_output(command, folder, True))


def _output(command: list[str], folder: Path, cache: bool) -> str:
    """What a command prints; one that fails ends the benchmark with what it said."""
    settings = {"ARMILLARY_CACHE": "1" if cache else "0", "ARMILLARY_CACHE_DIR": str(folder / "cache")}
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | settings
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command[:4])} failed:\n{done.stderr.strip()[-2000:]}")
    return done.stdout


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser, [str(_LIGHT / f"{name}.onnx") for name in _DEFAULT])
    parser.add_argument("--repeat", type=count, default=2, help="the smallest of so many (default: 2)")
    args = parser.parse_args()
    models = models_of(args)
    print("seconds: cold, warm: a whole `armc compile` process without and with a kernel cache; script: from_onnx and")
    print(f"relay.build alone, with the cache; the best of {args.repeat}")
    print(f"{'model':32} {'cold':>8} {'warm':>8} {'script':>8}")
    for model in models:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            cold = min(compile_once(model.path, folder, cache=False) for _ in range(args.repeat))
            compile_once(model.path, folder, cache=True)
            warm = min(compile_once(model.path, folder, cache=True) for _ in range(args.repeat))
            script = min(build_once(model.path, folder) for _ in range(args.repeat))
        print(f"{model.name:32} {cold:8.2f} {warm:8.2f} {script:8.2f}", flush=True)


if __name__ == "__main__":
    main()
