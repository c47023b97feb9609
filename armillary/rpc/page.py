"""The tracker's status page: devices, queue, sessions, failures, tuning, over HTTP on the tracker's own port.

In: the first bytes of an HTTP request. Out: the page (`/`), or the book as JSON (`/status.json`). Invariant: nothing
but reading; where the tracker has a secret, the page wants a password made from it (`page_password`); requests that
name another host or come from a page of another origin are refused, so no page of somebody else can read it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import html
import ipaddress
import time
from typing import TYPE_CHECKING

from armillary.rpc.protocol import Json

if TYPE_CHECKING:
    from armillary.rpc.tracker import TrackerService

_MAX_REQUEST = 8192
_STATUS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    431: "Too Large",
}
_REFRESH = """
async function refresh() {
  const place = document.getElementById("state");
  try {
    const answer = await fetch("/state.html", {cache: "no-store"});
    if (!answer.ok) throw new Error(answer.statusText);
    place.innerHTML = await answer.text();
    document.body.className = "";
  } catch (error) { document.body.className = "stale"; }
}
setInterval(refresh, 2000);
"""
_STYLE = """
:root { color-scheme: light dark; --line: #8884; --free: #247a41; --busy: #a36200; --bad: #c0392b; }
@media (prefers-color-scheme: dark) { :root { --free: #4fb673; --busy: #d9922a; --bad: #f0776a; } }
body { font: 16px/1.45 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 1rem; }
body.stale #state { opacity: .45; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.05rem; margin: 1.5rem 0 .3rem; }
div.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .35rem .8rem .35rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
figure { margin: 1rem 0; } figcaption { display: flex; flex-wrap: wrap; gap: .2rem 1rem; overflow-wrap: anywhere; }
svg { display: block; width: 100%; height: 6rem; border-bottom: 1px solid var(--line); }
polyline { fill: none; stroke: var(--free); stroke-width: 2; vector-effect: non-scaling-stroke; }
polyline.each { stroke: var(--line); stroke-width: 1; } figcaption .error { color: var(--bad); }
td.free { color: var(--free); } td.busy, td.granted { color: var(--busy); } td.text { overflow-wrap: anywhere; }
"""


async def serve_page(
    tracker: TrackerService, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, start: bytes
) -> None:
    """Answer one HTTP request and close."""
    try:
        rest = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        rest = b"x" * _MAX_REQUEST
    status, kind, body = respond(tracker, start + rest)
    lines = [
        f"HTTP/1.1 {status} {_STATUS[status]}",
        f"Content-Type: {kind}; charset=utf-8",
        f"Content-Length: {len(body)}",
        "Connection: close",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "X-Frame-Options: DENY",
        "Referrer-Policy: no-referrer",
        f"Content-Security-Policy: default-src 'none'; connect-src 'self'; script-src '{_script_hash()}'; "
        f"style-src '{_hash(_STYLE)}'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    ]
    if status == 401:
        lines.append('WWW-Authenticate: Basic realm="armillary tracker", charset="UTF-8"')
    head = "\r\n".join(lines).encode("ascii") + b"\r\n\r\n"
    writer.write(head if start == b"HEAD" else head + body)
    await writer.drain()


def respond(tracker: TrackerService, request: bytes) -> tuple[int, str, bytes]:
    """(status, content type, body) for an HTTP request."""
    if len(request) > _MAX_REQUEST:
        return 431, "text/plain", b"the request is too large\n"
    lines = request.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    fields: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if colon and name.lower() not in fields:
            fields[name.lower()] = value.strip()
        elif colon and name.lower() in ("host", "origin", "authorization"):
            return 400, "text/plain", b"a field of the request comes twice\n"
    if len(words) != 3 or "host" not in fields:
        return 400, "text/plain", b"this is no HTTP request\n"
    if not _is_own(fields, tracker.listener.host):
        return 403, "text/plain", b"requests of other pages are refused\n"
    if tracker.listener.secret is not None and not _knows(fields.get("authorization", ""), tracker.listener.secret):
        return 401, "text/plain", b"`armc rpc show` prints the password\n"
    return _content(tracker, words[1].partition("?")[0])


def _content(tracker: TrackerService, path: str) -> tuple[int, str, bytes]:
    if path == "/":
        return 200, "text/html", _page(tracker).encode()
    if path == "/state.html":
        return 200, "text/html", _state(tracker).encode()
    if path == "/status.json":
        return 200, "application/json", tracker.summary_text().encode()
    return 404, "text/plain", b"there is no such page\n"


def _is_own(fields: dict[str, str], listening: str) -> bool:
    """Whether the browser asks us by an address (not by a name that somebody else points at us), and for itself."""
    host = fields["host"]
    name = host[: host.find("]") + 1].strip("[]") if host.startswith("[") else host.partition(":")[0]
    if name not in ("localhost", listening) and not _is_address(name):
        return False
    origin = fields.get("origin", "")
    if origin and origin not in (f"http://{host}", f"https://{host}"):
        return False
    return fields.get("sec-fetch-site", "none") in ("none", "same-origin")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _knows(field: str, secret: bytes) -> bool:
    scheme, _, coded = field.partition(" ")
    if scheme.lower() != "basic":
        return False
    try:
        password = base64.b64decode(coded, validate=True).partition(b":")[2]
    except (binascii.Error, ValueError):
        return False
    return hmac.compare_digest(password, page_password(secret).encode())


def page_password(secret: bytes) -> str:
    """The page's password: made from the secret, which therefore never travels and cannot be had from it."""
    return hmac.new(secret, b"armillary-rpc-page", "sha256").hexdigest()[:20]


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _script_hash() -> str:
    return _hash(_REFRESH)


def _page(tracker: TrackerService) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>armillary tracker</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head><body><h1>armillary tracker</h1>"
        f'<main id="state">{_state(tracker)}</main><script>{_REFRESH}</script></body></html>'
    )


def _state(tracker: TrackerService) -> str:
    book = tracker.book.summary(time.monotonic())
    queue = [[key, row["total"], row["free"], row["pending"]] for key, row in book["queue_info"].items()]
    devices = [
        [
            d["key"],
            f"{d['addr'][0]}:{d['addr'][1]}",
            d["state"],
            d["user"],
            _span(d["seconds"]),
            d["sessions"],
            d["failures"],
        ]
        for d in book["server_info"]
    ]
    waiting = [[w["key"], w["user"], w["priority"], _span(w["seconds"])] for w in book["waiting"]]
    failures = [[_span(f["seconds_ago"]), f["key"], f["address"], f["user"], f["text"]] for f in book["failures"]]
    return (
        _tuning(tracker.curves.summary(time.monotonic()))
        + _table("Queue", ("key", "total", "free", "pending"), queue, "no devices are registered")
        + _table(
            "Devices", ("key", "address", "state", "user", "for", "sessions", "failures"), devices, "none registered"
        )
        + _table("Waiting", ("key", "user", "priority", "for"), waiting, "nobody waits")
        + _table("Failures", ("ago", "key", "address", "user", "what happened"), failures, "none")
    )


def _tuning(curves: list[dict[str, Json]]) -> str:
    """A curve for each task: the best speed by trials, and that of each trial."""
    return "<h2>Tuning</h2>" + "".join(map(_curve, curves)) if curves else ""


def _curve(curve: dict[str, Json]) -> str:
    points = curve["points"]
    width, height = max(1, points[-1][0]), max(1, *(best for _, _, best in points))
    lines = [
        " ".join(f"{300 * trial / width:.1f},{77 - 75 * row[place] / height:.1f}" for trial, *row in points)
        for place in (0, 1)
    ]
    _, flops, best = points[-1]
    of = f"/{curve['total']}" if curve["total"] else ""
    message = [
        curve["task"],
        f"{flops / 1e9:.2f}/{best / 1e9:.2f} GFLOPS",
        f"{curve['trials']}{of} trials",
        f"{curve['key']}, {curve['user']}, {_span(curve['seconds_ago'])} ago",
    ]
    texts = "".join(f"<span>{html.escape(text)}</span>" for text in message)
    if curve["failed"]:
        texts += f'<span class="error">{curve["failed"]} failed: {html.escape(curve["error"])}</span>'
    drawn = f'<polyline class="each" points="{lines[0]}"/><polyline points="{lines[1]}"/>'
    label = html.escape(f"best speed of {curve['task']} by trials", quote=True)
    svg = f'<svg viewBox="0 0 300 80" preserveAspectRatio="none" role="img" aria-label="{label}">{drawn}</svg>'
    return f"<figure>{svg}<figcaption>{texts}</figcaption></figure>"


def _table(title: str, heads: tuple[str, ...], rows: list[list[Json]], none: str) -> str:
    if not rows:
        return f"<h2>{title}</h2><p>{none}</p>"
    head = "".join(f"<th>{name}</th>" for name in heads)
    body = "".join("<tr>" + "".join(_cell(value) for value in row) + "</tr>" for row in rows)
    return f'<h2>{title}</h2><div class="wide"><table><tr>{head}</tr>{body}</table></div>'


def _cell(value: Json) -> str:
    text = html.escape(str(value))
    kind = f' class="{text}"' if text in ("free", "busy", "granted") else ' class="text"' if len(text) > 40 else ""
    return f"<td{kind}>{text}</td>"


def _span(seconds: int) -> str:
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"
