"""The tracker's page as a phone shows it: curves that grow, failures with their text; other origins read nothing."""

from __future__ import annotations

import contextlib
import http.server
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import BINARY, Browser
from farm import Farm, wait_until

pytestmark = pytest.mark.skipif(
    BINARY is None and os.environ.get("CI") != "true", reason="chromium is not installed (Debian's package chromium)"
)
WIDTH, HEIGHT = 390, 844
TASK = "conv2d_NCHWc.cpu 1x4x56x56x16 4x4x3x3x16x16 <b>1</b>"


@pytest.fixture(scope="module", params=["light", "dark"])
def browser(request: pytest.FixtureRequest) -> Iterator[Browser]:
    phone = Browser(WIDTH, HEIGHT, request.param)
    yield phone
    phone.close()


@pytest.fixture
def stranger() -> Iterator[str]:
    """A page of another origin."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>stranger</title><p>here")

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def report(farm: Farm, trials: int, gflops: float, *, failed: int = 0, error: str = "") -> None:
    speed = round(gflops * 1e9)
    numbers = {"trials": trials, "total": 100, "failed": failed, "flops": speed, "best": speed}
    farm.client.report({"key": "board", "task": TASK, "error": error, **numbers})


def test_a_phone_shows_devices_failures_and_curves_that_grow(farm: Farm, net: Path, browser: Browser) -> None:
    farm.add("board-of-a-rather-long-name")
    with farm.client.request("board-of-a-rather-long-name") as session:
        session.upload(net)
        with contextlib.suppress(Exception):
            session.load_module("net.tar")["crash"]()
    wait_until(lambda: farm.client.summary()["failures"] != [])
    report(farm, 1, 2.5)
    browser.open(f"http://127.0.0.1:{farm.port}/")
    text = browser.value("document.body.innerText")
    assert "board-of-a-rather-long-name" in text and "SIGSEGV" in text and TASK in text, "the task is text, not markup"
    assert "2.50/2.50 GFLOPS" in text and "1/100 trials" in text and "failed:" not in text
    assert browser.value("document.documentElement.scrollWidth") <= WIDTH
    assert browser.value("getComputedStyle(document.querySelector('polyline')).stroke") != "none", "its style applies"
    browser.value("window.mark = 'the same page'")
    for trials, gflops in ((2, 5.0), (3, 12.25)):
        report(farm, trials, gflops, failed=1, error="it ran longer than 3 s and was killed")
    browser.until("document.body.innerText.includes('12.25/12.25 GFLOPS')")
    assert browser.value("window.mark") == "the same page", "it was not loaded again"
    assert browser.value("document.querySelectorAll('polyline')[1].points.length") == 3
    heights = browser.value("[...document.querySelectorAll('polyline')[1].points].map(p => p.y)")
    assert heights == sorted(heights, reverse=True) and 0 <= heights[-1] < heights[0] <= 80
    assert "1 failed: it ran longer than 3 s and was killed" in browser.value("document.body.innerText")
    assert browser.value("document.documentElement.scrollWidth") <= WIDTH
    assert not browser.faint()


def test_a_page_that_lost_its_tracker_says_so(farm: Farm, browser: Browser) -> None:
    browser.open(f"http://127.0.0.1:{farm.port}/")
    browser.until("document.body.className === ''")
    farm.tracker.process.kill()
    browser.until("document.body.className === 'stale'")


def test_pages_of_other_origins_read_nothing(farm: Farm, browser: Browser, stranger: str) -> None:
    browser.open(stranger)
    place = f"http://127.0.0.1:{farm.port}"
    for path in ("/status.json", "/state.html", "/"):
        message = browser.value(f"fetch('{place}{path}').then(a => a.text(), e => 'refused: ' + e.name)")
        assert message == "refused: TypeError", (path, message)
        opaque = browser.value(f"fetch('{place}{path}', {{mode: 'no-cors'}}).then(a => a.type + a.status)")
        assert opaque == "opaque0"
    framed = (
        "new Promise(done => { const f = document.createElement('iframe'); f.onload = () => done("
        "(() => { try { return f.contentDocument === null } catch (e) { return true } })());"
        f" f.src = '{place}/'; document.body.append(f); }})"
    )
    assert browser.value(framed) is True
    sent = f"fetch('{place}/', {{method: 'POST', mode: 'no-cors', body: 'x'}}).then(a => a.type, e => e.name)"
    assert browser.value(sent) in ("opaque", "TypeError")
    assert farm.client.summary()["queue_info"] == {}
