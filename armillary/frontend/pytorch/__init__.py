"""PyTorch models as Relay modules, operator by operator, without ONNX files between.

`entry` has what users call; `exported` reads programs of torch.export, `script` those of TorchScript (what
is no tensor: `python_values`), `fx_graph` walks the graphs of both torch.export and torch.compile. `rules/` says what
each ATen operator becomes: one table (`table.py`) for all of them. Invariant: rules see Python values and Relay
expressions only; torch is imported by whoever has a model of it, never by this package for itself.
"""

from armillary.base.lazy import lazy_names

__getattr__, __dir__ = lazy_names(__name__, {"from_pytorch": "armillary.frontend.pytorch.entry:from_pytorch"})
