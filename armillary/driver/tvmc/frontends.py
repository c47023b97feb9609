"""Reading a model: `tvmc.load`.

In: a file, its form where the suffix does not tell, shapes by input name. Out: a TVMCModel. Invariant: a form that
cannot be imported is refused with the way through ONNX. Importers: `armillary/frontend`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from armillary.base.boundary import boundary
from armillary.cli._model import load_model
from armillary.driver.tvmc.model import TVMCModel


@boundary("tvmc.load")
def load(
    path: str | Path,
    model_format: str | None = None,
    shape_dict: Mapping[str, Sequence[int]] | None = None,
) -> TVMCModel:
    """Import .onnx, .h5 (Keras) or .relay; `model_format` ("onnx", "keras", "relay") overrules the suffix."""
    shapes = {name: tuple(int(size) for size in shape) for name, shape in (shape_dict or {}).items()}
    mod, params = load_model(str(path), shapes, form=model_format or "")
    return TVMCModel(mod, params)
