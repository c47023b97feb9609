"""A headless Chromium that tests talk to by its own protocol, over pipes: nothing listens."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

BINARY = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_CONTRAST = Path(__file__).with_name("contrast.js")
_OPTIONS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run")

_START = """
import fcntl, os, sys
source, target = (fcntl.fcntl(int(n), fcntl.F_DUPFD, 100) for n in sys.argv[1:3])
os.dup2(source, 3)
os.dup2(target, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""  # the browser takes commands from 3 and answers to 4


class Browser:
    """One page of a browser with a profile of its own."""

    def __init__(self, width: int, height: int, scheme: str = "light") -> None:
        assert BINARY is not None, "chromium is not installed"
        self._stack = contextlib.ExitStack()
        profile = self._stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()
        command = [BINARY, *_OPTIONS, f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]
        wrapped = [sys.executable, "-c", _START, str(to_read), str(to_write), *command]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(wrapped, pass_fds=(to_read, to_write), start_new_session=True, **quiet)
        os.close(to_read)
        os.close(to_write)
        self._number, self._held, self._session = 0, b"", ""
        pages = self.call("Target.getTargets")["targetInfos"]
        page = next(t["targetId"] for t in pages if t["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        metrics = {"width": width, "height": height, "deviceScaleFactor": 2, "mobile": True}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def call(self, method: str, **params: Any) -> Any:
        """The result of a method of the protocol."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = json.loads(self._message(60))
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def _message(self, seconds: float) -> bytes:
        until = time.monotonic() + seconds
        while b"\0" not in self._held:
            ready, _, _ = select.select([self._from], [], [], max(0.0, until - time.monotonic()))
            assert ready, "the browser does not answer"
            part = os.read(self._from, 1 << 16)
            assert part, "the browser has ended"
            self._held += part
        message, _, self._held = self._held.partition(b"\0")
        return message

    def open(self, url: str) -> None:
        """Go to an address and wait for the page."""
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def value(self, script: str) -> Any:
        """What an expression of the page's language gives; promises are awaited."""
        found = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)["result"]
        return found.get("value")

    def faint(self) -> dict[str, list[str]]:
        """The text of the page that has too little contrast: where, and its contrast (tests/rpc/contrast.js)."""
        return dict(self.value(_CONTRAST.read_text("utf-8")))

    def until(self, script: str, seconds: float = 60) -> None:
        """Wait until an expression is true."""
        limit = time.monotonic() + seconds
        while not self.value(script):
            assert time.monotonic() < limit, f"it did not become true: {script}"
            time.sleep(0.1)

    def close(self) -> None:
        """End the browser and remove its profile."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, 9)
        self._process.wait(20)
        os.close(self._to)
        os.close(self._from)
        self._stack.close()
