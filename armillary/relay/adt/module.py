"""Data types of a module by name, and modules that programs find ready.

In: a module and a name or tag. Out: definitions; or a module of the folder `std`, whose files are Relay texts.
Invariant: each call reads a module of its own.
"""

from __future__ import annotations

from pathlib import Path

from armillary.errors import ModelError
from armillary.ir import IRModule
from armillary.relay.adt import Constructor
from armillary.relay.adt.types import GlobalTypeVar, TypeData
from armillary.relay.parser import parse

_FOLDER = Path(__file__).with_name("std")
_FILES = {f"{name}.rly": f"{name}.txt" for name in ("core", "gradient", "nat", "prelude")}


def definitions(module: IRModule) -> list[TypeData]:
    """The data types of a module."""
    return [d for d in module.type_definitions.values() if isinstance(d, TypeData)]


def find_type(module: IRModule, name: str) -> tuple[GlobalTypeVar, TypeData]:
    """The name of a data type and its definition."""
    for data in definitions(module):
        if data.header.name_hint == name:
            return data.header, data
    known = ", ".join(d.header.name_hint for d in definitions(module)) or "none"
    raise ModelError(f"the module has no type {name!r}", hint=f"it has: {known}")


def find_constructor(module: IRModule, tag: int) -> Constructor:
    """The constructor of a tag."""
    for data in definitions(module):
        for form in data.constructors:
            if form.tag == tag:
                return form
    raise ModelError(f"the module has no constructor of tag {tag}")


def standard_module(name: str) -> IRModule:
    """A module that programs find ready."""
    if not isinstance(name, str) or name not in _FILES:
        raise ModelError(f"there is no module {name!r} to import", hint=f"there are: {', '.join(_FILES)}")
    return parse((_FOLDER / _FILES[name]).read_text("utf-8"), name)
