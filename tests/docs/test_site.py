"""The site that `make docs` builds: no dead link, all pages in the navigation, nothing wider than a phone, or faint."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rpc.browser import BINARY, Browser

ROOT = Path(__file__).parents[2]
WIDTH, HEIGHT = 390, 844
pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install armillary[docs]")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder


@pytest.fixture(scope="module", params=["light", "dark"])
def browser(request: pytest.FixtureRequest) -> Iterator[Browser]:
    if BINARY is None and os.environ.get("CI") != "true":
        pytest.skip("chromium is not installed (Debian's package chromium)")
    phone = Browser(WIDTH, HEIGHT, request.param)
    yield phone
    phone.close()


def test_pages_say_what_they_hold(site: Path) -> None:
    reference = (site / "reference" / "python.html").read_text()
    assert "Symbolic dimensions stay open" in reference and "reset_states" in reference
    assert "library[" in (site / "index.html").read_text().replace("</span>", "").replace('<span class="p">', "")


def test_no_page_is_wider_than_a_phone_or_has_faint_text(site: Path, browser: Browser) -> None:
    wide, faint = [], {}
    for page in sorted(site.rglob("*.html")):
        browser.open(page.as_uri())
        browser.until(f"location.href === {page.as_uri()!r}")
        width = browser.value("document.documentElement.scrollWidth")
        if width > WIDTH:
            wide.append(f"{page.relative_to(site)}: {width}")
        faint |= browser.faint()
    assert not wide, wide
    assert not faint, faint
