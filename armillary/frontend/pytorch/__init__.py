"""PyTorch models as Relay modules, operator by operator, without ONNX files between.

In: a program of torch.export or a module of TorchScript. Out: `(IRModule, params)`. `entry` has what users call;
`exported` reads programs of torch.export, `script` those of TorchScript (what
is no tensor: `python_values`), `fx_graph` walks the graphs of both torch.export and torch.compile. `rules/` says what
each ATen operator becomes: one table (`table.py`) for all of them. Invariant: rules see Python values and Relay
expressions only; torch is imported by whoever has a model of it, never by this package for itself.
"""

from armillary.base.lazy import lazy_names

_NAMES = ("from_pytorch", "states_of")
__getattr__, __dir__ = lazy_names(__name__, {name: f"armillary.frontend.pytorch.entry:{name}" for name in _NAMES})
