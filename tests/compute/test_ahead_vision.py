"""Vision functions in C++, here and on an emulated board: pixels, regions, corners and numbers that Python gives.

Each row of `CASES` configures a function in both languages: `&a` is the tensor `a` of a program, `A::B` a member.
"""

from __future__ import annotations

import math
import re
import subprocess

import numpy as np
import pytest
from emulators import need
from test_ahead import MACHINES

from armillary import compute
from armillary.compute import BorderMode, DataType, Format, Tensor, TensorInfo, TensorShape

_MATRIX = [1, -2, 3, 4, 5, -6, 7, 8, 9, 1, 2, 3, -4, 5, 6]
_WARP = [0.9, 0.1, -0.2, 1.1, 3.5, -2.25, 0.001, 0.002, 1.0]
_MODES = (BorderMode.UNDEFINED, BorderMode.CONSTANT, BorderMode.REPLICATE)
_NEAREST, _BILINEAR = "InterpolationPolicy::NEAREST_NEIGHBOR", "InterpolationPolicy::BILINEAR"
_EDGES = "&a, &c, 400, 150"
# Function, types of a, b, c and d ("-": none), arguments.
CASES = [
    ("NEBox3x3", "U8 - U8 -", "&a, &c, border, 77"),
    ("NEMedian3x3", "U8 - U8 -", "&a, &c, border, 77"),
    ("NEErode", "U8 - U8 -", "&a, &c, border, 77"),
    ("NEDilate", "U8 - U8 -", "&a, &c, border, 77"),
    ("NESobel5x5", "U8 - S16 S16", "&a, &c, &d, border, 77"),
    ("NESobel7x7", "U8 - S32 S32", "&a, &c, &d, border, 77"),
    ("NEScharr3x3", "U8 - S16 S16", "&a, &c, &d, border, 77"),
    ("NEDerivative", "U8 - S16 S16", "&a, &c, &d, border, 77"),
    ("NEConvolutionRectangle", "U8 - S16 -", "&a, &c, matrix, 3, 5, 0, border, 77"),
    ("NEConvolution7x7", "U8 - U8 -", "&a, &c, ones, 49, border, 77"),
    *(
        ("NENonLinearFilter", "U8 - U8 -", f"&a, &c, {f}, {side}, {pattern}, nullptr, border, 77")
        for f, side, pattern in (
            ("NonLinearFilterFunction::MEDIAN", 5, "MatrixPattern::DISK"),
            ("NonLinearFilterFunction::MIN", 5, "MatrixPattern::CROSS"),
            ("NonLinearFilterFunction::MAX", 3, "MatrixPattern::BOX"),
        )
    ),
    ("NENonMaximaSuppression3x3", "F32 - F32 -", "&a, &c, zeros"),
    ("NEPixelWiseMultiplication", "U8 U8 S16 -", "&a, &b, &c, 0.25f, ConvertPolicy::WRAP, RoundingPolicy::TO_ZERO"),
    (
        "NEPixelWiseMultiplication",
        "S16 S16 S16 -",
        "&a, &b, &c, 0.0039215686f, saturate, RoundingPolicy::TO_NEAREST_EVEN",
    ),
    ("NEBitwiseAnd", "U8 U8 U8 -", "&a, &b, &c"),
    ("NEBitwiseOr", "U8 U8 U8 -", "&a, &b, &c"),
    ("NEBitwiseXor", "U8 U8 U8 -", "&a, &b, &c"),
    ("NEBitwiseNot", "U8 - U8 -", "&a, &c"),
    ("NEAccumulate", "U8 - S16 -", "&a, &c"),
    ("NEAccumulateSquared", "U8 - S16 -", "&a, 3, &c"),
    ("NEAccumulateWeighted", "U8 - U8 -", "&a, 0.3f, &c"),
    ("NEMagnitude", "S16 S16 S16 -", "&a, &b, &c, MagnitudeType::L1NORM"),
    ("NEMagnitude", "S16 S16 S16 -", "&a, &b, &c, MagnitudeType::L2NORM"),
    ("NEPhase", "S16 S16 U8 -", "&a, &b, &c, PhaseType::SIGNED"),
    ("NEPhase", "S16 S16 U8 -", "&a, &b, &c, PhaseType::UNSIGNED"),
    ("NETableLookup", "U8 - U8 -", "&a, &lut, &c"),
    ("NEScale", "U8 - U8 half", f"&a, &d, {_NEAREST}, border, 77"),
    ("NEScale", "S16 - S16 half", f"&a, &d, {_BILINEAR}, border, 77"),
    ("NEScale", "U8 - U8 half", "&a, &d, InterpolationPolicy::AREA, border, 77"),
    ("NERemap", "U8 F32 U8 -", f"&a, &b, &b, &c, {_BILINEAR}, border, 77"),
    ("NEWarpAffine", "U8 - U8 -", f"&a, &c, warp, {_NEAREST}, border, 77"),
    ("NEWarpAffine", "U8 - U8 -", f"&a, &c, warp, {_BILINEAR}, border, 77"),
    ("NEWarpPerspective", "U8 - U8 -", f"&a, &c, warp, {_NEAREST}, border, 77"),
    ("NEHistogram", "U8 - - -", "&a, &distribution"),
    ("NEEqualizeHistogram", "U8 - U8 -", "&a, &c"),
    ("NEMeanStdDev", "U8 - - -", "&a, &mean, &deviation"),
    ("NEMinMaxLocation", "S16 - - -", "&a, &least, &most, &lows, &highs"),
    ("NEIntegralImage", "U8 - U32 -", "&a, &c"),
    ("NEFastCorners", "U8 - - -", "&a, 20, false, &corners, border, 77"),
    ("NEFastCorners", "U8 - - -", "&a, 20, true, &corners, border, 77"),
    ("NEHarrisCorners", "U8 - - -", "&a, 0.01f, 2.0f, 0.04f, 3, 5, &corners, border, 77"),
    ("NEHarrisCorners", "U8 - - -", "&a, 0.01f, 2.0f, 0.04f, 7, 3, &corners, border, 77"),
    ("NECannyEdge", "U8 - U8 -", f"{_EDGES}, 3, 1, border, 77"),
    ("NECannyEdge", "U8 - U8 -", f"{_EDGES}, 5, 2, border, 77"),
    ("NEGaussianPyramidHalf", "U8 - - -", "&a, &pyramid, border, 77"),
    ("NEGaussianPyramidOrb", "U8 - - -", "&a, &orb, border, 77"),
]
PROGRAM = """
#include "armillary_compute.hpp"
using namespace arm_compute;
template <class T> void print_as(const Tensor &t)
{
    const ValidRegion region = t.info()->valid_region();
    for(int n : {region.start(0), region.start(1), region.end(0), region.end(1)}) std::cout << n << ' ';
    for(int y = region.start(1); y < std::min(int(t.info()->dimension(1)), region.end(1)); ++y)
        for(int x = region.start(0); x < std::min(int(t.info()->dimension(0)), region.end(0)); ++x)
            std::cout << +*reinterpret_cast<T *>(t.ptr_to_element(Coordinates(x, y))) << ' ';
    std::cout << '\\n';
}
static void print(const Tensor &t)
{
    switch(t.info()->data_type())
    {
        case DataType::U8: return print_as<uint8_t>(t);
        case DataType::S16: return print_as<int16_t>(t);
        case DataType::S32: return print_as<int32_t>(t);
        case DataType::U32: return print_as<uint32_t>(t);
        case DataType::F32: return print_as<float>(t);
    }
}
int main(int, char **arguments)
{
    auto n = [&](int which) { return std::atoi(arguments[which]); };
    const int width = n(2), height = n(3);
    const auto border = BorderMode(n(4)), zeros = BorderMode::CONSTANT;
    const auto saturate = ConvertPolicy::SATURATE;
    Scheduler::get().set_num_threads(unsigned(n(5)));
    const int16_t matrix[] = {@MATRIX@};
    int16_t ones[49];
    std::fill(ones, ones + 49, int16_t(1));
    const std::array<float, 9> warp{{@WARP@}};
    Tensor a, b, c, d;
    Lut lut;
    for(int k = 0; k < 256; ++k) lut.buffer()[k] = uint8_t(255 - k / 2);
    Distribution1D distribution(7, 10, 200);
    float mean = 0, deviation = 0;
    int32_t least = 0, most = 0;
    Coordinates2DArray lows, highs;
    KeyPointArray corners;
    Pyramid pyramid, orb;
    pyramid.init(4, SCALE_PYRAMID_HALF, size_t(width), size_t(height));
    orb.init(4, SCALE_PYRAMID_ORB, size_t(width), size_t(height));
    const char *const names[] = {"U8", "S16", "F32", "S32", "U32"};
    Tensor *all[] = {&a, &b, &c, &d};
    for(int k = 0; k < 4; ++k)
        for(int t = 0; t < 5; ++t)
            if(arguments[6 + k] == std::string(names[t]))
                all[k]->allocator()->init(TensorInfo(TensorShape(width, height), 1, DataType(t)));
    if(arguments[9] == std::string("half"))
        d.allocator()->init(TensorInfo(TensorShape(width / 2 + 3, height / 2), 1, c.info()->data_type()));
    std::unique_ptr<IFunction> function;
    switch(n(1))
    {
@CONFIGURE@
    }
    pyramid.allocate(), orb.allocate();
    for(Tensor *each : all) each->allocator()->allocate();
    for(Tensor *each : {&a, &b, &c})
    {
        if(each->info()->total_size() <= 1) continue;
        Window window;
        window.use_tensor_dimensions(each->info()->tensor_shape());
        Iterator it(each, window);
        const size_t size = each->info()->element_size();
        execute_window_loop(window, [&](const Coordinates &) { std::cin.read((char *)it.ptr(), long(size)); }, it);
    }
    function->run();
    std::cout << std::setprecision(9);
    for(Tensor *each : {&c, &d}) if(each->info()->total_size() > 1) print(*each);
    for(Pyramid *each : {&pyramid, &orb})
        for(size_t k = 0; k < each->num_levels(); ++k) print(*each->get_pyramid_level(k));
    for(size_t k = 0; k < 7; ++k) std::cout << distribution.buffer()[k] << ' ';
    std::cout << mean << ' ' << deviation << ' ' << least << ' ' << most << ' ';
    for(Coordinates2DArray *each : {&lows, &highs})
        for(size_t k = 0; k < each->num_values(); ++k) std::cout << each->at(k).x << ' ' << each->at(k).y << ' ';
    for(size_t k = 0; k < corners.num_values(); ++k)
        std::cout << corners.at(k).x << ' ' << corners.at(k).y << ' ' << corners.at(k).strength << ' ';
    std::cout << '\\n';
}
"""


def _program() -> str:
    rows = []
    for number, (name, _, arguments) in enumerate(CASES):
        body = f"auto *f = new {name}; function.reset(f); f->configure({arguments});"
        rows.append(f"        case {number}: {{ {body} break; }}")
    text = PROGRAM.replace("@MATRIX@", ", ".join(map(str, _MATRIX))).replace("@CONFIGURE@", "\n".join(rows))
    return text.replace("@WARP@", ", ".join(f"{v}f" for v in _WARP))


@pytest.fixture(scope="module", params=MACHINES)
def command(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The program, as this machine runs it."""
    target, compiler, emulator = MACHINES[request.param]
    need(compiler, *emulator[:1])
    folder = tmp_path_factory.mktemp("vision")
    out = compute.build(dict.fromkeys(name for name, _, _ in CASES), target=target, out=folder / "out")
    (folder / "p.cpp").write_text(_program())
    flags = ["-std=c++11", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{out}"]
    sources = [str(folder / "p.cpp"), str(out / "libarmillary_compute.a"), "-lpthread", "-o", str(folder / "p")]
    subprocess.run([compiler, *flags, *sources], check=True)
    return [*emulator, str(folder / "p")]


class _Python:
    """One case in Python: its tensors, its results."""

    def __init__(self, width: int, height: int, kinds: list[str], border: BorderMode) -> None:
        self.outputs: list[Tensor] = []
        self.tensors = {name: Tensor() for name in "abcd"}
        for (name, tensor), kind in zip(self.tensors.items(), kinds, strict=True):
            if kind == "half":
                shape, kind = TensorShape(width // 2 + 3, height // 2), kinds[2]
            else:
                shape = TensorShape(width, height)
            if kind != "-":
                tensor.allocator().init(TensorInfo(shape, 1, DataType[kind]))
                self.outputs += [tensor] if name in "cd" else []
        self.lut = compute.Lut(256, DataType.U8)
        self.lut.fill([255 - k // 2 for k in range(256)])
        self.pyramid, self.orb = compute.Pyramid(), compute.Pyramid()
        self.pyramid.init(4, compute.SCALE_PYRAMID_HALF, width, height, Format.U8)
        self.orb.init(4, compute.SCALE_PYRAMID_ORB, width, height, Format.U8)
        self.distribution = compute.Distribution1D(7, 10, 200)
        self.numbers = {name: compute.Scalar() for name in ("mean", "deviation", "least", "most")}
        self.lists: dict[str, list] = {"lows": [], "highs": [], "corners": []}
        own = {"lut": self.lut, "distribution": self.distribution, "pyramid": self.pyramid, "orb": self.orb}
        plain = {"matrix": _MATRIX, "ones": [1] * 49, "warp": _WARP, "border": border, "zeros": BorderMode.CONSTANT}
        plain |= {"saturate": compute.ConvertPolicy.SATURATE, "nullptr": None, "true": True, "false": False}
        self.names = {**self.tensors, **own, **plain, **self.numbers, **self.lists}

    def run(self, name: str, arguments: str, values: list[np.ndarray]) -> list[list[float]]:
        """What the program prints."""
        text = re.sub(r"(\d)f\b", r"\1", arguments.replace("&", "").replace("::", "."))
        function = getattr(compute, name)()
        function.configure(*eval(f"[{text}]", {**vars(compute), **self.names, **_enums()}))  # our own rows
        self.pyramid.allocate()
        self.orb.allocate()
        for tensor in self.tensors.values():
            if tensor.has_info():
                tensor.allocator().allocate()
        filled = [t for key, t in self.tensors.items() if t.has_info() and key in "abc"]
        for tensor, array in zip(filled, values, strict=True):
            tensor.array()[...] = array
        function.run()
        levels = [p.get_pyramid_level(k) for p in (self.pyramid, self.orb) for k in range(4)]
        rows = [_region(tensor) for tensor in (*self.outputs, *levels)]
        last = [*self.distribution.buffer().tolist(), *(s.value for s in self.numbers.values())]
        last += [n for name in ("lows", "highs") for place in self.lists[name] for n in place]
        last += [n for p in self.lists["corners"] for n in (p.x, p.y, p.strength)]
        return [*rows, last]


def _enums() -> dict[str, object]:
    names = (
        "NonLinearFilterFunction MatrixPattern ConvertPolicy RoundingPolicy MagnitudeType PhaseType InterpolationPolicy"
    )
    return {name: getattr(compute, name) for name in names.split()}


def _region(tensor: Tensor) -> list[float]:
    region, info = tensor.info().valid_region(), tensor.info()
    x, y, right, bottom = region.start(0), region.start(1), region.end(0), region.end(1)
    array = tensor.array().reshape(info.dimension(1), info.dimension(0))
    inside = array[y : min(bottom, info.dimension(1)), x : min(right, info.dimension(0))]
    return [x, y, right, bottom, *inside.ravel().tolist()]


def _values(rng: np.random.Generator, kind: str, shape: tuple[int, int]) -> np.ndarray:
    """A picture with corners and some noise; places for maps."""
    if kind == "F32":
        return (rng.integers(-20, 160, shape) / 4).astype(np.float32)
    if kind == "U8":
        blocks = np.kron(rng.integers(0, 2, (-(-shape[0] // 9), -(-shape[1] // 11))) * 150, np.ones((9, 11), int))
        return (blocks[: shape[0], : shape[1]] + rng.integers(0, 60, shape)).astype(np.uint8)
    return rng.integers(-900, 900, shape).astype(DataType[kind].dtype)


@pytest.mark.parametrize("border", range(3))
def test_programs_give_what_python_gives(command: list[str], border: int) -> None:
    rng = np.random.default_rng(border)
    for number, (name, types, arguments) in enumerate(CASES):
        if border and "border" not in arguments:
            continue
        width, height, kinds = int(rng.integers(40, 90)), int(rng.integers(30, 60)), types.split()
        values = [_values(rng, kind, (height, width)) for kind in kinds[:3] if kind != "-"]
        words = [number, width, height, border, 1 + number % 3, *kinds]
        given = b"".join(v.tobytes() for v in values)
        done = subprocess.run([*command, *map(str, words)], input=given, capture_output=True, check=True, timeout=60)
        printed = [[float(word) for word in line.split()] for line in done.stdout.decode().splitlines()]
        wanted = _Python(width, height, kinds, _MODES[border]).run(name, arguments, values)
        assert [len(row) for row in printed] == [len(row) for row in wanted], (name, arguments, width, height)
        for found, want in zip(printed, wanted, strict=True):
            same = sum(math.isclose(a, b, rel_tol=2e-6) for a, b in zip(found, want, strict=True))
            # A place that a board's fused sums round to the pixel beside is another pixel.
            part = 0.99 if "Warp" in name else 1.0
            assert same >= part * len(want), (name, arguments, width, height)
