"""The gallery of vision functions shows what the functions give now."""

from __future__ import annotations

import numpy as np
from PIL import Image

from tools.vision_gallery import FOLDER, ITEMS, PAGE, page


def test_the_gallery_shows_what_functions_give() -> None:
    assert PAGE.read_text() == page(), "run tools/vision_gallery.py"
    assert {path.stem for path in FOLDER.glob("*.png")} == set(ITEMS)
    for name, draw in ITEMS.items():
        difference = np.abs(np.asarray(Image.open(FOLDER / f"{name}.png")).astype(int) - draw())
        assert (difference > 1).mean() < 0.01, f"{name}: run tools/vision_gallery.py"
