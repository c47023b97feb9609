"""What `make docs` does to pages on their way: links to files of the checkout, which the site lacks, become names.

In: a page's Markdown and its place under docs/. Out: the Markdown. Invariant: links between pages stay, so that a dead
one fails the build. Configuration: mkdocs.yml.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

_LINK = re.compile(r"\[([^\]]*)\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:  # Any: mkdocs has no types
    """Replace the links of one page; listings stay as they are."""
    here = posixpath.dirname(page.file.src_uri)
    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else _LINK.sub(lambda m: _replaced(m, here), part) for part in parts)


def _replaced(match: re.Match[str], here: str) -> str:
    text, target = match[1], match[2]
    place = posixpath.normpath(posixpath.join(here, target))
    if place.startswith("../"):
        name = place.removeprefix("../")
        return text if text.startswith("`") or name.startswith(text) else f"{text} (`{name}`)"
    if place.endswith((".md", ".png", ".svg", ".css")):
        return match[0]
    return match[0].replace(target, f"{target.rstrip('/')}/README.md") if place == "decisions" else text
