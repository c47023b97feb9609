"""House rules that a program can check: budgets, docstrings, the environment, words."""

from __future__ import annotations

import ast
import re
import resource
import subprocess
import sys

import pytest
from sources import FILES, PACKAGE, ROOT, nodes, tree, where

MAX_FILE, MAX_FUNCTION, IMPORT_SECONDS = 600, 60, 0.3
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_TEXT_SUFFIXES = {".py", ".md", ".c", ".h", ".toml", ".case", ".txt", ".json", ".yml", ".yaml", ".sh"}
_GRAMMARS = {"tir", "relay", "cli", "text", "transform", "graph", "rpc"}  # protocols, command lines, examples of passes
_FORBIDDEN = ["/" + folder + "/" for folder in ("work", "opt/dev", "root", "home")]  # paths of one machine


def test_files_stay_within_600_lines() -> None:
    sizes = {str(f.relative_to(ROOT)): len(f.read_text("utf-8").splitlines()) for f in FILES}
    assert not {name: n for name, n in sizes.items() if n > MAX_FILE}


def test_functions_stay_within_60_lines() -> None:
    long = [
        f"{where(file, node)}: {node.name} has {node.end_lineno - node.lineno + 1} lines"
        for file in FILES
        for node in nodes(file)
        if isinstance(node, _FUNCTIONS) and node.end_lineno and node.end_lineno - node.lineno + 1 > MAX_FUNCTION
    ]
    assert not long, "\n".join(long)


def test_every_module_says_what_it_is_in_3_to_12_lines() -> None:
    wrong = []
    for file in FILES:
        doc = ast.get_docstring(tree(file))
        lines = len(doc.splitlines()) if doc else 0
        empty = not file.read_text("utf-8").strip()
        small = file.name == "__init__.py" and len(file.read_text("utf-8").splitlines()) < 12
        grammar = bool(_GRAMMARS & set(file.parts))
        if not empty and not (doc if small else 3 <= lines <= (40 if grammar else 14)):
            wrong.append(f"{file.relative_to(ROOT)}: docstring of {lines} lines")
    assert not wrong, "\n".join(wrong)


def test_every_module_says_what_goes_in_and_out_and_what_stays() -> None:
    """But grammars, façades, commands (their docstring is the help that users read) and small maps of folders."""
    wrong = []
    for file in FILES:
        doc = ast.get_docstring(tree(file)) or ""
        small = file.name == "__init__.py" and len(file.read_text("utf-8").splitlines()) < 12
        command = file.parent == PACKAGE / "cli" and "examples:" in doc
        if not doc or small or command or "A façade" in doc:
            continue
        wanted = {"Invariant": r"\b[Ii]nvariant\b"}
        if not re.search(r"^Grammar\b.*:$", doc, re.MULTILINE):
            wanted |= {"In": r"\bIn\b[^.:]*:", "Out": r"\b([Oo]ut|Gives)\b[^.:]*:"}
        wrong += [f"{file.relative_to(ROOT)}: no {word}" for word, text in wanted.items() if not re.search(text, doc)]
    assert not wrong, "\n".join(wrong)


def test_files_that_docstrings_name_exist() -> None:
    """Where to look next is a place that is there; a name is the end of a path."""
    listed = subprocess.run(["git", "ls-files", "-co"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    ends = {"/".join(parts[n:]) for parts in (line.split("/") for line in listed.split()) for n in range(len(parts))}
    wrong = []
    for file in FILES:
        named = re.findall(
            r"(?<![\w*<>{}~/.-])[\w/-]+\.(?:py|c|h|hpp|md|txt)\b(?!\()", ast.get_docstring(tree(file)) or ""
        )
        wrong += [f"{file.relative_to(ROOT)}: {name}" for name in named if name not in ends]
    assert not wrong, "\n".join(wrong)


def test_nothing_is_imported_from_a_conftest() -> None:
    """There are several of that name: folders of tests could not be collected together."""
    wrong = [
        str(file.relative_to(ROOT))
        for file in (ROOT / "tests").rglob("*.py")
        if re.search(r"^\s*(from conftest|import conftest)\b", file.read_text("utf-8"), re.MULTILINE)
    ]
    assert not wrong, wrong


def test_public_functions_and_classes_have_docstrings() -> None:
    wrong = []
    for file in FILES:
        for node in tree(file).body:
            public = isinstance(node, (*_FUNCTIONS, ast.ClassDef)) and not node.name.startswith("_")
            if public and not _documented(node):
                wrong.append(f"{where(file, node)}: {node.name}")
    assert not wrong, f"{len(wrong)} without a docstring:\n" + "\n".join(wrong)


def _documented(node: ast.AST) -> bool:
    return bool(ast.get_docstring(node)) or bool(getattr(node, "decorator_list", None))  # type: ignore[arg-type]


def test_the_environment_is_read_in_config_only() -> None:
    wrong = []
    for file in FILES:
        if file == PACKAGE / "base" / "config.py":
            continue
        for node in nodes(file):
            if isinstance(node, ast.Attribute) and _is_environment(node) and not _is_child_environment(file, node):
                wrong.append(where(file, node))
    assert not wrong, "\n".join(wrong)


def _is_environment(node: ast.Attribute) -> bool:
    return node.attr in ("environ", "getenv") and isinstance(node.value, ast.Name) and node.value.id == "os"


def _is_child_environment(file: object, node: ast.Attribute) -> bool:
    """`{**os.environ, …}` passes the whole environment on to a child process: nothing is read from it."""
    return any(
        isinstance(d, ast.Dict) and any(k is None and v is node for k, v in zip(d.keys, d.values))
        for d in nodes(file)  # type: ignore[arg-type]
    )


def test_errors_are_not_swallowed() -> None:
    wrong = []
    for file in FILES:
        for node in nodes(file):
            if isinstance(node, ast.ExceptHandler):
                bare = node.type is None
                silent = len(node.body) == 1 and isinstance(node.body[0], ast.Pass) and _is_broad(node.type)
                if bare or silent:
                    wrong.append(where(file, node))
            if isinstance(node, ast.Raise) and "NotImplementedError" in ast.dump(node):
                wrong.append(where(file, node))
    assert not wrong, "\n".join(wrong)


def _is_broad(kind: ast.expr | None) -> bool:
    return isinstance(kind, ast.Name) and kind.id in ("Exception", "BaseException")


def test_no_forbidden_words_or_paths() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\n")
    wrong = []
    for name in listed:
        file = ROOT / name
        if file.suffix not in _TEXT_SUFFIXES or not file.is_file() or name.startswith(("shared/", ".git")):
            continue
        text = file.read_text("utf-8", errors="replace")
        wrong += [f"{name}: {word!r}" for word in _FORBIDDEN if word in text.lower()]
        if file != ROOT / "tests" / "house" / "test_style.py":
            wrong += [f"{name}: {match[0]!r}" for match in re.finditer(r"\b(TODO|FIXME|XXX)\b", text)]
    assert not wrong, "\n".join(wrong)


def test_importing_the_package_takes_less_than_300_ms() -> None:
    def once() -> float:  # of the processor: other processes do not count
        start = _seconds_of_children()
        subprocess.run([sys.executable, "-c", "import armillary"], cwd=ROOT, check=True)
        return _seconds_of_children() - start

    best = min(once() for _ in range(5))
    assert best < IMPORT_SECONDS, f"import armillary took {best:.3f} s (best of 5, including the interpreter's start)"


def _seconds_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


_HEAVY = (
    "onnx",
    "llvmlite",
    "ml_dtypes",
    "numpy",
    "armillary.codegen.build",
    "armillary.ops",
    "armillary.runtime",
    "armillary.backends.registry",
    "armillary.te",
)


@pytest.mark.parametrize(
    ("code", "loaded"),
    [
        ("import armillary", ""),
        ("from armillary import relay", ""),
        ("from armillary import te, tir", "armillary.te numpy"),
        ("from armillary import relay; relay.nn.relu", "armillary.ops numpy"),
        ("from armillary import target; target.Target('llvm')", ""),
        ("import armillary.runtime", "armillary.runtime numpy"),
        ("from armillary import relay; relay.frontend.from_onnx", "numpy"),
        ("from armillary import relay; relay.build", "armillary.ops numpy"),
    ],
)
def test_an_import_loads_what_it_needs_and_no_more(code: str, loaded: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sorted({set(_HEAVY)} & set(sys.modules)))"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == loaded


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        (
            "from armillary import te\nA = te.placeholder((4,), name='A')\n"
            "B = te.compute((4,), lambda i: A[i] * 2.0, name='B')\n"
            "f = te.lower_schedule(te.create_schedule(B.op), [A, B], 'f')\nprint(f)\n"
            "from armillary.ir import IRModule\nprint(IRModule({'f': f}))",
            "B[i] = A[i] * 2.0",
        ),
        (
            "from armillary.relay.expr import Function, Tuple, var\nx = var('x', shape=(2,))\n"
            "print(Function((x,), Tuple((x,))))",
            "fn (%x: Tensor[(2,), float32])",
        ),
        ("from armillary.tir.expr import Add, Var\nprint(Add(Var('i'), Var('j')))", "i + j"),
    ],
)
def test_programs_print_as_text_without_further_imports(code: str, wanted: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert wanted in done.stdout


def test_pass_options_are_known_before_any_pass_was_imported() -> None:
    options = {"relay.FuseOps.max_depth": 3, "tir.UnrollLoop": {}}
    code = f"import armillary\narmillary.transform.PassContext(config={options})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
