"""The object that registers a library's functions in the system library when it is loaded (target "llvm -system-lib").

In: the descriptor of functions, perhaps a network: name, graph and the symbol of its parameters. Out: LLVM IR whose
constructor hands one `arm_system_part` to the runtime and whose destructor takes it back. Invariant: every symbol that
the descriptor names is in its table, by address, so that the symbols of the code may be local to their object.
The C side: runtime/native/arm_system.c; who links: codegen/system_lib.py.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from armillary.artifact import Descriptor, PhaseRow
from armillary.artifact.json_form import dump
from armillary.base.record import record

ADD, REMOVE = "arm_system_add", "arm_system_remove"
_PART = "{ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, i64, i64, i64, i64}"  # arm_system_part
_CALLS = {ADD: ".init_array", REMOVE: ".fini_array"}


@record(slots=True)
class Network:
    """The network that a part holds: its name, graph JSON, and where its parameters lie: a symbol, how many bytes."""

    name: str
    graph_json: str
    params_symbol: str
    params_size: int


def registration_ir(descriptor: Descriptor, network: Network | None, are_kernels: bool) -> str:
    """The LLVM IR; `are_kernels`: the functions are a network's, whose names say what they compute."""
    texts = _Texts()
    rows = json.loads(descriptor.to_json())["functions"]
    functions = _table("functions", [(texts.add(dump(name)), texts.add(dump(row))) for name, row in rows.items()])
    symbols = sorted({symbol for row in descriptor.functions.values() for p in row.phases for symbol in _symbols(p)})
    addresses = _table("symbols", [(texts.add(symbol), f'@"{symbol}"') for symbol in symbols])
    needs = ",".join(dump(feature) for feature in descriptor.needs)
    code = dump(dict(descriptor.device_code)) if descriptor.device_code else ""
    fields = ["null", *(texts.add(text) for text in (dump(descriptor.target), needs, code))]
    if network is None:
        fields += ["null"] * 3
    else:
        fields += [texts.add(network.name), texts.add(network.graph_json), f'@"{network.params_symbol}"']
    numbers = (network.params_size if network else 0, len(rows), len(symbols), int(are_kernels))
    body = [*(f"ptr {field}" for field in (*fields, "@functions", "@symbols")), *(f"i64 {n}" for n in numbers)]
    entries = ", ".join(f"ptr @{name}_entry" for name in _CALLS)
    return "\n".join(
        [
            *texts.lines,
            functions,
            addresses,
            *(f'declare void @"{symbol}"()' for symbol in symbols),
            *([f'@"{network.params_symbol}" = external constant i8'] if network else []),
            f"@part = internal global {_PART} {{{', '.join(body)}}}",
            *(line for function, section in _CALLS.items() for line in _call(function, section)),
            f'@llvm.used = appending global [{len(_CALLS)} x ptr] [{entries}], section "llvm.metadata"',
            "",
        ]
    )


def _symbols(phase: PhaseRow) -> list[str]:
    return [symbol for symbol in (phase.symbol, phase.extent) if isinstance(symbol, str)]


class _Texts:
    """Constants of C strings."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, text: str) -> str:
        """The name of a constant with this text."""
        data = text.encode() + b"\0"
        shown = "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in data)
        name = f"@text{len(self.lines)}"
        self.lines.append(f'{name} = private unnamed_addr constant [{len(data)} x i8] c"{shown}"')
        return name


def _table(name: str, rows: Sequence[tuple[str, str]]) -> str:
    pairs = ", ".join(f"{{ptr, ptr}} {{ptr {first}, ptr {second}}}" for first, second in rows)
    return f"@{name} = internal constant [{len(rows)} x {{ptr, ptr}}] [{pairs}]"


def _call(function: str, section: str) -> list[str]:
    """A function in an array of those that the loader calls; `llvm.global_ctors` would write the older `.ctors`."""
    return [
        f"declare void @{function}(ptr)",
        f"define internal void @call_{function}() {{ call void @{function}(ptr @part) ret void }}",
        f'@{function}_entry = internal global ptr @call_{function}, section "{section}"',
    ]
