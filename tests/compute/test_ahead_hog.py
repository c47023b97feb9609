"""Histograms of gradients in C++, here and on an emulated board: descriptors and windows that Python gives."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest
from emulators import need
from test_ahead import MACHINES

from armillary import compute
from armillary.compute import (
    BorderMode,
    DetectionWindow,
    Format,
    HOGInfo,
    HOGNormType,
    Image,
    MultiHOG,
    PhaseType,
    Size2D,
    Tensor,
    TensorInfo,
)

NAMES = ["NEHOGDescriptor", "NEHOGDetector", "NEHOGMultiDetection"]
NORMS = (HOGNormType.L2_NORM, HOGNormType.L2HYS_NORM, HOGNormType.L1_NORM)
MODES = (BorderMode.UNDEFINED, BorderMode.CONSTANT, BorderMode.REPLICATE)
PROGRAM = """
#include "armillary_compute.hpp"
using namespace arm_compute;
int main(int, char **arguments)
{
    auto n = [&](int which) { return std::atoi(arguments[which]); };
    const unsigned width = unsigned(n(1)), height = unsigned(n(2));
    const auto border = BorderMode(n(3));
    Scheduler::get().set_num_threads(unsigned(n(6)));
    const HOGInfo info(Size2D(8, 8), Size2D(16, 16), Size2D(32, 48), Size2D(8, 8), 9, HOGNormType(n(4) + 1), 0.2f,
                       n(5) ? PhaseType::SIGNED : PhaseType::UNSIGNED);
    MultiHOG models(2);
    for(size_t k = 0; k < 2; ++k) models.model(k)->init(info);
    Image image;
    Tensor descriptors;
    image.allocator()->init(TensorInfo(width, height, Format::U8));
    descriptors.allocator()->init(TensorInfo(info, width, height));
    NEHOGDescriptor describe;
    describe.configure(&image, &descriptors, models.model(0), border, 70);
    DetectionWindowArray windows, best;
    NEHOGDetector detect;
    detect.configure(&descriptors, models.model(0), &windows, Size2D(8, 16), 0.1f, 3);
    Size2DArray strides;
    strides.push_back(Size2D(8, 16)), strides.push_back(Size2D(16, 8));
    NEHOGMultiDetection all;
    all.configure(&image, &models, &best, &strides, border, 70, 0.1f, true, 20.0f);
    image.allocator()->allocate(), descriptors.allocator()->allocate();
    for(unsigned y = 0; y < height; ++y)
        std::cin.read((char *)image.ptr_to_element(Coordinates(0, int(y))), long(width));
    for(size_t k = 0; k < 2; ++k)
        std::cin.read((char *)models.model(k)->descriptor(), long(4 * info.descriptor_size()));
    describe.run(), detect.run(), all.run();
    const size_t values = info.num_bins_per_block();
    const auto blocks = info.num_block_positions_per_image(Size2D(width, height));
    for(size_t y = 0; y < blocks.height; ++y)
        std::cout.write((char *)descriptors.ptr_to_element(Coordinates(0, int(y))), long(4 * blocks.width * values));
    for(auto *detections : {&windows, &best})
        for(size_t k = 0; k < detections->num_values(); ++k)
        {
            const DetectionWindow &w = detections->at(k);
            const float row[] = {float(w.x), float(w.y), float(w.width), float(w.height), float(w.idx_class), w.score};
            std::cout.write((const char *)row, sizeof row);
        }
}
"""


@pytest.fixture(scope="module", params=MACHINES)
def command(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The program, as this machine runs it."""
    folder = tmp_path_factory.mktemp("hog")
    target, compiler, emulator = MACHINES[request.param]
    need(compiler, *emulator[:1])
    out = compute.build(NAMES, target=target, out=folder / "out")
    (folder / "p.cpp").write_text(PROGRAM)
    flags = ["-std=c++11", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{out}"]
    sources = [str(folder / "p.cpp"), str(out / "libarmillary_compute.a"), "-lpthread", "-o", str(folder / "p")]
    subprocess.run([compiler, *flags, *sources], check=True)
    return [*emulator, str(folder / "p")]


def _by_python(
    pixels: np.ndarray, factors: list[np.ndarray], mode: BorderMode, norm: HOGNormType, phase: PhaseType
) -> tuple[np.ndarray, np.ndarray]:
    info = HOGInfo(Size2D(8, 8), Size2D(16, 16), Size2D(32, 48), Size2D(8, 8), 9, norm, 0.2, phase)
    image, descriptors, models = Image(), Tensor(), MultiHOG(2)
    for n in (0, 1):
        models.model(n).init(info)
    image.allocator().init(TensorInfo(pixels.shape[1], pixels.shape[0], Format.U8))
    descriptors.allocator().init(info.tensor_info(pixels.shape[1], pixels.shape[0]))
    describe, detect, every = compute.NEHOGDescriptor(), compute.NEHOGDetector(), compute.NEHOGMultiDetection()
    describe.configure(image, descriptors, models.model(0), mode, 70)
    windows: list[DetectionWindow] = []
    best: list[DetectionWindow] = []
    detect.configure(descriptors, models.model(0), windows, Size2D(8, 16), 0.1, 3)
    every.configure(image, models, best, [Size2D(8, 16), Size2D(16, 8)], mode, 70, 0.1, True, 20.0)
    image.allocator().allocate()
    descriptors.allocator().allocate()
    image.write(pixels)
    for n, values in enumerate(factors):
        models.model(n).descriptor()[...] = values
    for function in (describe, detect, every):
        function.run()
    rows = [(w.x, w.y, w.width, w.height, w.idx_class, w.score) for w in (*windows, *best)]
    return descriptors.read().ravel(), np.array(rows, np.float32).reshape(-1, 6)


@pytest.mark.parametrize("number", range(6))
def test_descriptors_and_windows_are_those_of_python(command: list[str], number: int) -> None:
    rng = np.random.default_rng([7, number])
    width, height = int(rng.integers(72, 130)), int(rng.integers(70, 110))
    pixels = rng.integers(0, 256, (height, width)).astype(np.uint8)
    factors = [rng.standard_normal(3 * 5 * 36 + 1).astype(np.float32) for _ in range(2)]
    factors = [values - values[:-1].mean() for values in factors]  # descriptors of such an image are much alike
    mode, norm, phase = MODES[number % 3], NORMS[number // 2], (PhaseType.UNSIGNED, PhaseType.SIGNED)[number % 2]
    wanted, windows = _by_python(pixels, factors, mode, norm, phase)
    numbers = (width, height, number % 3, number // 2, number % 2, 1 + number % 2)
    data = pixels.tobytes() + b"".join(values.tobytes() for values in factors)
    done = subprocess.run([*command, *map(str, numbers)], input=data, capture_output=True, check=True)
    values = np.frombuffer(done.stdout, np.float32)
    np.testing.assert_allclose(values[: wanted.size], wanted, rtol=0, atol=2e-6 * wanted.max())
    found = values[wanted.size :].reshape(-1, 6)
    assert len(windows) > 2 and (found[:, :5] == windows[:, :5]).all()
    np.testing.assert_allclose(found[:, 5], windows[:, 5], rtol=0, atol=1e-4)
