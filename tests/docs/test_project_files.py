"""What a package index and a visitor look for: licence, metadata, how to help, report and cite; a short README."""

from __future__ import annotations

from pathlib import Path

import tomllib

ROOT = Path(__file__).parents[2]


def test_the_files_of_a_project_are_there() -> None:
    assert "Apache License" in (ROOT / "LICENSE").read_text("utf-8")
    for name in ("CONTRIBUTING.md", "SECURITY.md", "CITATION.cff", "CHANGELOG.md"):
        assert len((ROOT / name).read_text("utf-8").split()) > 20, name


def test_the_metadata_is_whole() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert {"name", "version", "description", "readme", "license", "requires-python", "classifiers"} <= set(project)
    assert "numpy" in str(project["dependencies"]) and project["scripts"]["armc"]


def test_the_readme_is_short_and_figures_have_their_page() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    assert len(readme.split("\n")) <= 66 and "docs/performance.md" in readme
    assert (ROOT / "docs" / "performance.md").exists()
