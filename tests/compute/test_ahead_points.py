"""Sums, differences, thresholds and gradients in C++, here and on an emulated board: what the Python functions give."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest
from emulators import need
from test_ahead import MACHINES

from armillary import compute
from armillary.compute import BorderMode, ConvertPolicy, DataType, Tensor, TensorInfo, TensorShape, ThresholdType

NAMES = ["NEArithmeticAddition", "NEArithmeticSubtraction", "NEAbsoluteDifference", "NEThreshold", "NESobel3x3"]
FUNCTIONS = range(len(NAMES))
U8, S16, F32 = DataType.U8, DataType.S16, DataType.F32
TYPES = (U8, S16, F32)
MODES = (BorderMode.UNDEFINED, BorderMode.CONSTANT, BorderMode.REPLICATE)
PROGRAM = """
#include "armillary_compute.hpp"
using namespace arm_compute;
template <class T> void print(const Tensor &t, int width, int height)
{
    const ValidRegion region = t.info()->valid_region();
    for(int n : {region.start(0), region.start(1), region.end(0), region.end(1)}) std::cout << n << ' ';
    for(int z = 0; z < int(t.info()->dimension(2)); ++z)
        for(int y = region.start(1); y < std::min(height, region.end(1)); ++y)
            for(int x = region.start(0); x < std::min(width, region.end(0)); ++x)
                std::cout << +*reinterpret_cast<T *>(t.ptr_to_element(Coordinates(x, y, z))) << ' ';
    std::cout << '\\n';
}
int main(int, char **arguments)
{
    auto n = [&](int which) { return std::atoi(arguments[which]); };
    const int function = n(1), width = n(2), height = n(3), planes = n(4), option = n(8);
    Tensor a, b, c, d;
    Tensor *all[] = {&a, &b, &c, &d};
    const int kinds[] = {n(5), n(6), n(7), n(7)};
    for(int k = 0; k < 4; ++k)
        all[k]->allocator()->init(TensorInfo(TensorShape(width, height, planes), 1, DataType(kinds[k])));
    NEArithmeticAddition add;
    NEArithmeticSubtraction subtract;
    NEAbsoluteDifference difference;
    NEThreshold threshold;
    NESobel3x3 sobel;
    IFunction *functions[] = {&add, &subtract, &difference, &threshold, &sobel};
    try
    {
        if(function == 0) add.configure(&a, &b, &c, ConvertPolicy(option));
        if(function == 1) subtract.configure(&a, &b, &c, ConvertPolicy(option));
        if(function == 2) difference.configure(&a, &b, &c);
        if(function == 3) threshold.configure(&a, &c, 90, 3, 250, ThresholdType(option), 180);
        if(function == 4) sobel.configure(&a, option == 3 ? nullptr : &c, &d, BorderMode(option % 3), 77);
    }
    catch(const std::exception &e) { std::cout << e.what(); return 0; }
    for(Tensor *each : all) each->allocator()->allocate();
    for(Tensor *each : {&a, &b})
    {
        Window window;
        window.use_tensor_dimensions(each->info()->tensor_shape());
        Iterator it(each, window);
        const size_t size = each->info()->element_size();
        execute_window_loop(window, [&](const Coordinates &) { std::cin.read((char *)it.ptr(), size); }, it);
    }
    functions[function]->run();
    for(Tensor *each : {&c, &d})
    {
        if(each == &d ? function != 4 : function == 4 && option == 3) continue;
        if(kinds[2] == 0) print<uint8_t>(*each, width, height);
        if(kinds[2] == 1) print<int16_t>(*each, width, height);
        if(kinds[2] == 2) print<float>(*each, width, height);
    }
}
"""


@pytest.fixture(scope="module", params=MACHINES)
def command(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The program, as this machine runs it."""
    target, compiler, emulator = MACHINES[request.param]
    need(compiler, *emulator[:1])
    folder = tmp_path_factory.mktemp("points")
    out = compute.build(NAMES, target=target, out=folder / "out")
    (folder / "p.cpp").write_text(PROGRAM)
    flags = ["-std=c++11", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{out}"]
    sources = [str(folder / "p.cpp"), str(out / "libarmillary_compute.a"), "-lpthread", "-o", str(folder / "p")]
    subprocess.run([compiler, *flags, *sources], check=True)
    return [*emulator, str(folder / "p")]


def _values(rng: np.random.Generator, kind: DataType, shape: tuple[int, ...]) -> np.ndarray:
    if kind is F32:  # whole, so that both print them alike
        return rng.integers(-500, 500, shape).astype(np.float32)
    limits = np.iinfo(kind.dtype)
    return rng.integers(limits.min, limits.max + 1, shape).astype(kind.dtype)


def _by_python(function: int, kinds: list[DataType], values: list[np.ndarray], option: int) -> list[list[float]]:
    a, b, c, d = tensors = [Tensor() for _ in range(4)]
    for tensor, kind in zip(tensors, [*kinds, kinds[-1]], strict=True):
        tensor.allocator().init(TensorInfo(TensorShape(*values[0].shape[::-1]), 1, kind))
    made = getattr(compute, NAMES[function])()
    outputs = [c]
    if function < 2:
        made.configure(a, b, c, list(ConvertPolicy)[option])
    elif function == 2:
        made.configure(a, b, c)
    elif function == 3:
        made.configure(a, c, 90, 3, 250, list(ThresholdType)[option], 180)
    else:
        made.configure(a, None if option == 3 else c, d, MODES[option % 3], 77)
        outputs = [d] if option == 3 else [c, d]
    for tensor in tensors:
        tensor.allocator().allocate()
    a.array()[...], b.array()[...] = (v.reshape(t.array().shape) for v, t in zip(values, (a, b), strict=True))
    made.run()
    rows = []
    for tensor in outputs:
        region, width, height = tensor.info().valid_region(), values[0].shape[2], values[0].shape[1]
        x, y, right, bottom = region.start(0), region.start(1), region.end(0), region.end(1)
        array = tensor.array().reshape(values[0].shape)[:, y : min(bottom, height), x : min(right, width)]
        rows.append([x, y, right, bottom, *array.ravel().tolist()])
    return rows


SUMS = [(U8, U8, U8), (U8, U8, S16), (U8, S16, S16), (S16, U8, S16), (S16, S16, S16), (F32, F32, F32)]
CASES = [(f, kinds, policy) for f in (0, 1) for kinds in SUMS for policy in (0, 1)]
CASES += [(2, (U8, U8, U8), 0), (2, (S16, S16, S16), 0), (3, (U8, U8, U8), 0), (3, (U8, U8, U8), 1)]
CASES += [(4, (U8, U8, S16), option) for option in range(4)]


def _run(
    command: list[str],
    function: int,
    kinds: tuple[DataType, ...],
    sizes: tuple[int, ...],
    option: int,
    values: list[np.ndarray],
) -> str:
    words = [function, *sizes, *(TYPES.index(kind) for kind in kinds), option]
    given = b"".join(v.tobytes() for v in values)
    done = subprocess.run([*command, *map(str, words)], input=given, capture_output=True, check=True, timeout=60)
    return done.stdout.decode()


def test_programs_give_what_python_gives(command: list[str]) -> None:
    rng = np.random.default_rng(11)
    for function, kinds, option in CASES:
        width, height = int(rng.integers(18, 90)), int(rng.integers(3, 30))
        planes = 1 if function == 4 else int(rng.integers(1, 3))
        values = [_values(rng, kind, (planes, height, width)) for kind in kinds[:2]]
        printed = _run(command, function, kinds, (width, height, planes), option, values)
        rows = [[float(word) for word in line.split()] for line in printed.splitlines()]
        assert rows == _by_python(function, list(kinds), values, option), (function, kinds, option, width, height)


def test_types_that_no_kernel_takes_are_refused(command: list[str]) -> None:
    wanted = {
        (0, (F32, U8, F32)): "the kernel addition_F32_U8_F32_True was not built",
        (2, (U8, S16, U8)): "absolute_difference: tensors are U8,S16,U8, wanted U8,U8,U8",
        (4, (U8, U8, U8)): "sobel3x3: tensors are U8,U8,U8, wanted U8,S16,S16",
    }
    for (function, kinds), message in wanted.items():
        assert message in _run(command, function, kinds, (40, 8, 1), 1, [])
