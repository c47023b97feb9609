"""Reading a text calls nothing: Python's audit events say so, whatever the text holds."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from armillary import script, te
from armillary.errors import ArmillaryError, ParseError, TypeMismatch

_ESCAPES = [
    '__import__("os").system("touch {mark}")',
    'open("{mark}", "w")',
    'eval("1")',
    "exec('x = 1')",
    "print(1)",
    "().__class__.__base__.__subclasses__()",
    "A.__class__",
    "A.shape.__class__.__mro__",
    "T.__builtins__",
    "T.re.compile('x')",
    "T.tir.transform",
    "T.boundary.__globals__",
    "T.build.__globals__",
    "T.builtins.builtin('call_packed').__globals__",
    "T.X.serial.__globals__",
    "T.tree_of(T.grid)",
    "T.names_around(T.grid)",
    "T.parse_function",
    "T.prim_func(T.grid)",
    "T.interpret(1)",
    "T.register_intrin_lowering('exp', 'default', lambda x: x)",
    "T.lower.lower_function",
    "T.transform.Simplify()",
    "T.stmt_functor.ir_transform",
    "T.Schedule(A)",
    "T.decl_buffer.__wrapped__",
    "T.exp.__globals__",
    "T.axis.__dict__",
    "T.axis.spatial.__globals__",
    "T.Buffer.__call__.__globals__",
    "I.ir_module.__globals__",
    "I.boundary",
    '"{{0.__class__}}".format(A)',
    '"%1000000000d" % 1',
    'f"{{A.__class__}}"',
    "[x for x in A.__dict__]",
    "(lambda x: x.__class__)(A)",
    "int.__subclasses__()",
    "float.fromhex",
    "[c := 1]",
    "{{1, 2}}",
    "(yield)",
    "vars()",
    "getattr(A, 'data')",
]
_ENDLESS = [
    "range(9**9**9)",
    "9**9**9",
    "1 << 9**9",
    "1 << (1 << 40)",
    "[0] * 10**9",
    '"x" * 10**9',
    "10**9 * (0,)",
    "[[[[0] * 300] * 300] * 300] * 300",
    "[a for a in [0] * 60000 for b in [0] * 60000]",
    "(lambda f: f(f, 60))(lambda f, n: [f(f, n - 1) + f(f, n - 1) for x in [1] * n])",
    "(lambda f: f(f))(lambda f: f(f))",
    "9" * 5000,
    "(" * 150 + "1" + ")" * 150 + "+1" * 5000,
    "-" * 5000 + "1",
    "A[" * 1000 + "0" + "]" * 1000,
]


def _source(expression: str) -> str:
    return f"@T.prim_func\ndef f(A: T.Buffer((4,), 'float32')):\n    for i in range(4):\n        A[i] = {expression}\n"


@pytest.mark.parametrize("expression", _ESCAPES)
@pytest.mark.parametrize("place", ["body", "annotation", "loop", "attribute"])
def test_a_script_reaches_nothing_but_the_language(expression: str, place: str, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    text = expression.format(mark=mark)
    sources = {
        "body": _source(text),
        "annotation": f"@T.prim_func\ndef f(A: T.Buffer((({text}) + 4,), 'float32')):\n    A[0] = 1.0\n",
        "loop": f"@T.prim_func\ndef f(A: T.Buffer((4,), 'float32')):\n    for i in range({text}):\n        pass\n",
        "attribute": f"@T.prim_func\ndef f(A: T.Buffer((4,), 'float32')):\n    T.func_attr({{'x': {text}}})\n",
    }
    with pytest.raises(ArmillaryError):
        script.from_source(sources[place])
    assert not mark.exists()


@pytest.mark.parametrize("expression", _ENDLESS, ids=range(len(_ENDLESS)))
def test_what_a_script_computes_has_bounds(expression: str) -> None:
    start = time.perf_counter()
    with pytest.raises(ArmillaryError):
        script.from_source(_source(expression))
    assert time.perf_counter() - start < 20


def test_lists_of_lists_are_counted_at_all_depths() -> None:
    lines = ["x = T.meta_var([1, 2])", *["x = T.meta_var([x, x])"] * 60, "T.func_attr({'a': x})"]
    with pytest.raises(ParseError, match="more than 65536 parts"):
        script.from_source("@T.prim_func\ndef f(A: T.handle):\n    " + "\n    ".join(lines))


def test_a_text_calls_what_its_reader_gives_it_by_name() -> None:
    source = _source("scale(3)")
    with pytest.raises(ParseError, match="line 4: name 'scale' is not defined"):
        script.from_source(source)
    body = script.from_source(source, {"scale": lambda x: float(2 * x)}).body
    assert "= 6.0" in str(body)
    with pytest.raises(ParseError, match="os has no attribute 'system' in a text"):
        script.from_source(_source("os.system('true')"), {"os": __import__("os")})


@pytest.mark.parametrize(
    "body",
    [
        "__import__('os').system('touch {mark}')",
        "x = open('{mark}', 'w')",
        "x = a.__class__",
        "x = a.tofile('{mark}')",
        "x = [i for i in a]",
        "x = (lambda: 0)()",
        "import os",
        "x = sqrt.__globals__",
    ],
)
def test_loading_a_hybrid_script_runs_nothing(body: str, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    text = f"def f(a):\n    {body.format(mark=mark)}\n    return a\n"
    for source in (text, f"open('{mark}', 'w')\n{text}", f"@open('{mark}', 'w')\n{text}"):
        (tmp_path / "saved.py").write_text(source)
        with pytest.raises(TypeMismatch, match=r"f, line \d+: .* is not part of the language"):
            te.hybrid.HybridModule().load(str(tmp_path / "saved.py"))
    assert not mark.exists()


def test_what_stands_around_a_hybrid_script_is_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    harm = f"open('{mark}', 'w')"
    text = f"{harm}\n@{harm}\ndef f(a: {harm}, b={harm}):\n    c = output_tensor((2,), 'float32')\n    return c\n"
    assert te.hybrid.HybridModule(text).name == "f"
    assert not mark.exists()


_AUDITED = """
import sys
from armillary import relay, script, te, tir
from armillary.errors import ArmillaryError
from armillary.target import Target
from armillary.tir.parser import parse_module
harm = '__import__("os").system("true")'
texts = {
    script.from_source: "@T.prim_func\\ndef f(A: T.Buffer((%s,), 'float32')):\\n    A[0] = 1.0\\n",
    te.hybrid.HybridModule: "def f(a):\\n    c = output_tensor((%s,), 'float32')\\n    return c\\n",
    parse_module: "func @main(A: Buffer[(%s,), float32]) attrs {} {\\n  A[0] = 1.0\\n}\\n",
    relay.fromtext: '#[version = "0.0.5"]\\ndef @main(%%x: Tensor[(%s, 3), float32]) { %%x }',
    Target: "llvm -num-cores=%s",
}
read = 0
for function, text in texts.items():
    function(text % 8)
seen = []
forbidden = ("os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "os.fork", "socket.connect", "ctypes.dlopen")
sys.addaudithook(lambda event, args: seen.append(event) if event in forbidden else None)
for function, text in texts.items():
    for inner in (harm, "(" + harm + ")", "8 + " + harm):
        try:
            function(text % inner)
        except ArmillaryError:
            read += 1
assert read == 3 * len(texts), read
assert not seen, seen
"""


def test_no_reader_of_texts_starts_a_process() -> None:
    done = subprocess.run([sys.executable, "-c", _AUDITED], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
