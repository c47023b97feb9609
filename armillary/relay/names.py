"""Operators as the functions users write: `relay.add`, `relay.nn.conv2d`, `relay.image.resize2d`.

In: a dotted name. Out: a user function (`misc/user.py`: other argument orders, combinations), else the function of
the operator of that name (calling it builds a Call), or a namespace for a prefix such as `nn`. Invariant: there is no
list of operators here; the names are those in `FUNCTIONS` and `OPS`, filled as they are asked for
(`lazy_registry.py`). Texts name operators only. The table of all other user names is in `relay/__init__.py`;
`__init__.pyi` is for type checkers.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from typing import Any

from armillary.base.aliases import AnyFunction
from armillary.relay.lazy_registry import current_name, is_lowered, listed_operators
from armillary.relay.op import OPS, register_legalize
from armillary.relay.op.signature import OperatorFunction, function_of


class OpNames:
    """Attribute access to the operators below one prefix: `OpNames("nn.").conv2d`."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self.__name__ = f"relay.{prefix[:-1]}"

    def __getattr__(self, name: str) -> Any:  # Any: an Op or a deeper namespace
        result = find_operator(self._prefix + name)
        if result is None and self._prefix == "qnn.":
            result = _qnn_name(self, name)
        if result is None:
            raise AttributeError(f"there is no operator relay.{self._prefix}{name}")
        return result

    def __dir__(self) -> list[str]:
        names = (name for name in OPS if name.startswith(self._prefix) and not is_lowered(name))
        return sorted({name[len(self._prefix) :].split(".")[0] for name in names})

    def __repr__(self) -> str:
        return f"<operators {self._prefix}*>"


def _qnn_name(space: OpNames, name: str) -> Any:  # Any: a namespace, module, function or None
    """Scripts write relay.qnn.op.conv2d, relay.qnn.op.register_qnn_legalize and relay.qnn.transform.Legalize()."""
    if name.startswith("register_qnn_"):
        kinds = {"register_qnn_legalize": "FTVMQnnLegalize", "register_qnn_canonicalize": "FTVMQnnCanonicalize"}
        return functools.partial(register_legalize, kind=kinds[name]) if name in kinds else None
    if name == "transform":
        return importlib.import_module("armillary.relay.transform.quantize._qnn")
    if name == "requantize_config":
        return importlib.import_module("armillary.ops.qnn.quantize").requantize_config
    return space if name in ("op", "qnn") else None


def user_functions() -> Mapping[str, AnyFunction]:
    """The functions that stand before the operators of the same name."""
    table: Mapping[str, AnyFunction] = importlib.import_module("armillary.ops.misc.user").FUNCTIONS
    return table


def find_operator(name: str) -> OperatorFunction | OpNames | AnyFunction | None:
    """What `relay.<name>` means: a user function, an operator, the namespace it is a prefix of, or None."""
    if name.startswith("_"):
        return None
    if name.startswith("nn.contrib_"):  # as scripts of the Relay era write it
        name = current_name(name.replace("nchwc", "NCHWc"))
    space = OpNames(name + ".")
    if any(known.startswith(name + ".") for known in listed_operators()):
        return space
    functions = user_functions()
    if name in functions:
        return functions[name]
    if name in OPS:
        return function_of(OPS[name])
    return space if any(known.startswith(name + ".") for known in OPS) else None


def operator_names() -> list[str]:
    """First components of the names of all operators."""
    return sorted({name.split(".")[0] for name in (*OPS, *user_functions()) if not is_lowered(name)})


def is_shown(name: str) -> bool:
    """Whether users write a first component: it is a function of theirs, or of an operator that is not a back end's."""
    listed = (known for known in listed_operators() if known.split(".")[0] == name)
    return name in user_functions() or any(not is_lowered(known) for known in listed)
