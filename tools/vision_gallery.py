"""Writes the gallery of vision functions: `docs/images/vision/*.png` and `docs/vision_gallery.md`.

Run: `python tools/vision_gallery.py`. In: a scene that it draws itself. Out: a small grey image for each function and
the page that shows them. Invariant: what is written depends on the functions alone.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image as Picture

from armillary import compute
from armillary.compute import BorderMode, Format, Image, InterpolationPolicy, TensorInfo

ROOT = Path(__file__).parents[1]
FOLDER, PAGE = ROOT / "docs/images/vision", ROOT / "docs/vision_gallery.md"
WIDTH, HEIGHT = 96, 72
REPLICATE, BILINEAR = BorderMode.REPLICATE, InterpolationPolicy.BILINEAR
Pixels = npt.NDArray[np.uint8]


def scene() -> Pixels:
    """Discs, a square, a slope and specks."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    picture = 60 + x // 2 + y // 3
    picture[np.hypot(x - 28, y - 34) < 18] = 220
    picture[np.hypot(x - 34, y - 28) < 7] = 30
    picture[20:54, 56:84] = 15
    picture[30:44, 64:76] = 180
    rng = np.random.default_rng(1)
    for _ in range(60):
        picture[int(rng.integers(HEIGHT)), int(rng.integers(WIDTH))] = 255 * int(rng.integers(2))
    return picture.astype(np.uint8)


def image(width: int = WIDTH, height: int = HEIGHT, kind: Format = Format.U8) -> Image:
    """An image that is not allocated."""
    picture = Image()
    picture.allocator().init(TensorInfo(width, height, kind))
    return picture


def one(name: str, *more: object, size: tuple[int, int] = (WIDTH, HEIGHT), kind: Format = Format.U8) -> Pixels:
    """The output of a function of one input; wider types are brought to 0..255."""
    source, target = image(), image(*size, kind)
    function = getattr(compute, name)()
    function.configure(source, target, *more)
    source.allocator().allocate()
    target.allocator().allocate()
    source.array()[...] = scene()
    function.run()
    return shown(target.array())


def shown(values: npt.NDArray[np.generic]) -> Pixels:
    """Any values as grey."""
    wide = values.astype(np.float64)
    if values.dtype != np.uint8:
        wide = (wide - wide.min()) * 255 / max(wide.max() - wide.min(), 1)
    return wide.astype(np.uint8)


def gradients(which: str) -> Pixels:
    """Length or angle of the gradients of Sobel."""
    source, gx, gy = image(), image(kind=Format.S16), image(kind=Format.S16)
    target = image(kind=Format.S16 if which == "NEMagnitude" else Format.U8)
    sobel, then = compute.NESobel3x3(), getattr(compute, which)()
    sobel.configure(source, gx, gy, REPLICATE)
    then.configure(gx, gy, target)
    for each in (source, gx, gy, target):
        each.allocator().allocate()
    source.array()[...] = scene()
    sobel.run()
    then.run()
    return shown(target.array())


def corners(name: str, *numbers: object) -> Pixels:
    """The scene, darker, with its corners."""
    source, corners_of_image = image(), list[compute.KeyPoint]()
    function = getattr(compute, name)()
    function.configure(source, *numbers, corners_of_image, REPLICATE)
    source.allocator().allocate()
    source.array()[...] = scene()
    function.run()
    drawn = scene() // 3
    for point in corners_of_image:
        drawn[max(0, point.y - 1) : point.y + 2, max(0, point.x - 1) : point.x + 2] = 255
    return drawn


def levels() -> Pixels:
    """A Gaussian pyramid side by side."""
    source, pyramid, function = image(), compute.Pyramid(), compute.NEGaussianPyramidHalf()
    pyramid.init(4, 0.5, WIDTH, HEIGHT)
    function.configure(source, pyramid, REPLICATE)
    source.allocator().allocate()
    pyramid.allocate()
    source.array()[...] = scene()
    function.run()
    canvas, x = np.full((HEIGHT, 2 * WIDTH), 255, np.uint8), 0
    for n in range(4):
        level = pyramid.get_pyramid_level(n).array()
        canvas[: level.shape[0], x : x + level.shape[1]] = level
        x += level.shape[1]
    return canvas


MEDIAN, BOX = compute.NonLinearFilterFunction.MEDIAN, compute.MatrixPattern.BOX
EMBOSS = [-2, -1, 0, -1, 1, 1, 0, 1, 2]
TURN = [0.94, 0.34, -0.34, 0.94, 15.0, -12.0]
ITEMS: dict[str, Callable[[], Pixels]] = {
    "input": scene,
    "NEGaussian5x5": lambda: one("NEGaussian5x5", REPLICATE),
    "NEMedian3x3": lambda: one("NEMedian3x3", REPLICATE),
    "NEErode": lambda: one("NEErode", REPLICATE),
    "NEDilate": lambda: one("NEDilate", REPLICATE),
    "NENonLinearFilter": lambda: one("NENonLinearFilter", MEDIAN, 5, BOX, None, REPLICATE),
    "NEConvolution3x3": lambda: one("NEConvolution3x3", EMBOSS, 1, REPLICATE),
    "NEThreshold": lambda: one("NEThreshold", 100),
    "NEBitwiseNot": lambda: one("NEBitwiseNot"),
    "NEMagnitude": lambda: gradients("NEMagnitude"),
    "NEPhase": lambda: gradients("NEPhase"),
    "NECannyEdge": lambda: one("NECannyEdge", 150, 70, 3, 1, REPLICATE),
    "NEEqualizeHistogram": lambda: one("NEEqualizeHistogram"),
    "NEIntegralImage": lambda: one("NEIntegralImage", kind=Format.U32),
    "NEWarpAffine": lambda: one("NEWarpAffine", TURN, BILINEAR, BorderMode.CONSTANT, 255),
    "NEScale": lambda: one("NEScale", BILINEAR, REPLICATE, size=(2 * WIDTH, HEIGHT)),
    "NEGaussianPyramidHalf": levels,
    "NEFastCorners": lambda: corners("NEFastCorners", 40, True),
    "NEHarrisCorners": lambda: corners("NEHarrisCorners", 1e-3, 8.0, 0.05, 3, 5),
}


def page() -> str:
    """The page: three images a row."""
    message = "Written by `python tools/vision_gallery.py`; what each function takes: [list](compute.md#vision)."
    lines, names = ["# Vision functions in pictures", "", message], list(ITEMS)
    lines += ["", "| | | |", "|---|---|---|"]
    for first in range(0, len(names), 3):
        row = [f"![{n}](images/vision/{n}.png)<br>`{n}`" for n in names[first : first + 3]]
        lines.append("| " + " | ".join([*row, *[""] * (3 - len(row))]) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write images and page."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, draw in ITEMS.items():
        Picture.fromarray(draw()).save(FOLDER / f"{name}.png", optimize=True)
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
