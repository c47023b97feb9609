"""The generated pages are what the tables in the code say, and every page that a text names exists."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

from armillary import errors
from armillary.base.config import SETTINGS

ROOT = Path(__file__).parents[2]
_PLACE = re.compile(r"`((?:docs|tests|tools|armillary|benchmarks|examples)/[\w./-]+\.(?:py|md|c|h))`")


def test_generated_pages_are_current() -> None:
    done = subprocess.run(
        [sys.executable, "tools/write_docs.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_migration_page_has_no_note_about_a_name_that_is_gone() -> None:
    sys.path.insert(0, str(ROOT))
    migration = importlib.import_module("tools.migration")
    migration.check_notes()
    assert migration.exists("relay.nn.conv2d") and migration.exists("contrib.graph_executor")
    assert not migration.exists("relay.nn.no_such_operator") and not migration.exists("no_such_module.name")


def test_every_setting_is_documented() -> None:
    page = (ROOT / "docs" / "environment.md").read_text("utf-8")
    assert all(f"| `{name}` |" in page for name in SETTINGS)


def test_every_kind_of_error_is_documented() -> None:
    kinds = [n for n, c in vars(errors).items() if isinstance(c, type) and issubclass(c, errors.ArmillaryError)]
    page = (ROOT / "docs" / "errors.md").read_text("utf-8")
    assert [name for name in kinds if f"`{name}`" not in page] == []


def test_files_named_in_the_docs_exist() -> None:
    missing = [
        f"{page.relative_to(ROOT)}: {name}"
        for page in sorted((ROOT / "docs").rglob("*.md"))
        for name in _PLACE.findall(page.read_text("utf-8"))
        if not (ROOT / name).exists() and "<" not in name
    ]
    assert missing == []
