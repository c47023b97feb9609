"""Text cases: files of inputs and expected outputs for anything that maps text to text.

The first line of a case file names what runs it, for example `tir: unroll-loop` or `relay: fold-constant`.
Then, repeated:

    [case name-of-the-case]
    input text
    [out]
    expected text

`check_case(case, run, update)` runs one; with `update` (pytest --update-cases) it rewrites the file instead, and the
diff is for reading. Lines that start with `;;` are comments of the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_CASE = re.compile(r"^\[case (?P<name>[\w.-]+)\]\n(?P<input>.*?)^\[out\]\n(?P<out>.*?)(?=^\[case |\Z)", re.M | re.S)


@dataclass(frozen=True)
class Case:
    """One case; `language` and `subject` come from the first line of its file."""

    path: Path
    language: str
    subject: str
    name: str
    input: str
    expected: str


def load_cases(folder: Path, language: str = "") -> list[Case]:
    """All cases of the `*.case` files in a folder (of one language, if given)."""
    found: list[Case] = []
    for path in sorted(folder.glob("*.case")):
        head, _, body = path.read_text().partition("\n")
        file_language, _, subject = (part.strip() for part in head.partition(":"))
        if language and file_language != language:
            continue
        cases = [Case(path, file_language, subject, m["name"], m["input"], m["out"]) for m in _CASE.finditer(body)]
        assert cases, f"{path} holds no case"
        assert len(cases) == len(re.findall(r"^\[case ", body, re.M)), f"{path}: a case lacks its [out]"
        found.extend(cases)
    return found


def check_case(case: Case, run: Callable[[str], str], update: bool = False) -> None:
    """Run a case and compare, or rewrite its expected part."""
    got = run("\n".join(line for line in case.input.splitlines() if not line.startswith(";;")))
    if update and _strip(got) != _strip(case.expected):
        text = case.path.read_text()
        start = text.index("[out]\n", text.index(f"[case {case.name}]\n")) + len("[out]\n")
        end = text.find("\n[case ", start)
        end = len(text) if end < 0 else end + 1
        case.path.write_text(text[:start] + _strip(got) + "\n" + ("\n" if end < len(text) else "") + text[end:])
        return
    assert _strip(got) == _strip(case.expected), f"{case.path.name}: {case.name}\n--- got\n{got}"


def _strip(text: str) -> str:
    return text.strip("\n").rstrip()


def case_ids(cases: list[Case]) -> list[str]:
    """Readable pytest ids."""
    return [f"{case.path.stem}:{case.name}" for case in cases]
