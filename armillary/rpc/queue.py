"""Who gets which device: the tracker's book, without sockets or clocks of its own.

In: devices that come, go, are free or busy; requests; the time. Out: which request gets which device. Invariant: a
device is in one state (`free`, `granted`, `busy`), a ticket is given to one request, and a request that can be met is
met at once. The highest priority goes first - one level more for each minute of waiting - then the user with the
fewest devices, then the one who used devices least of late, then the oldest request. Sockets: `tracker.py`.
"""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import field

from armillary.base.record import record
from armillary.rpc.protocol import Json

AGEING_SECONDS = 60.0  # of waiting count as one level of priority
HALF_LIFE_SECONDS = 60.0  # after which use of devices counts half
CLAIM_SECONDS = 10.0  # for a client to come with its ticket
_FAILURES = 50  # that are remembered


@record(slots=True, frozen=False, eq=False)
class Device:
    """A server as the tracker sees it."""

    key: str
    host: str
    port: int
    tls: bool = False
    info: dict[str, Json] = field(default_factory=dict)
    state: str = "busy"  # free, granted (a client is on its way), busy
    ticket: str = ""
    user: str = ""
    since: float = 0.0
    sessions: int = 0
    failures: int = 0


@record(slots=True, frozen=False, eq=False)
class Request:
    """Somebody who waits for a device."""

    key: str
    user: str
    priority: int
    since: float
    number: int
    granted: Device | None = None
    ticket: str = ""


@record(slots=True)
class Failure:
    """A session that ended badly."""

    when: float
    key: str
    address: str
    user: str
    text: str


class Book:
    """Devices, requests and what became of them."""

    def __init__(self, claim_seconds: float = CLAIM_SECONDS) -> None:
        self.claim_seconds = claim_seconds
        self.devices: list[Device] = []
        self.waiting: list[Request] = []
        self.failures: deque[Failure] = deque(maxlen=_FAILURES)
        self._numbers = itertools.count()
        self._used: dict[str, tuple[float, float]] = {}  # user -> decayed seconds of use, as of when

    def add(self, device: Device) -> None:
        """A server registered; it is busy until it gives a ticket."""
        self.devices.append(device)

    def drop(self, device: Device, now: float) -> None:
        """A server went away; a client that was sent to it is told by its own connection."""
        if device.state == "busy" and device.user:
            self._charge(device, now)
            self.fail(device, "the server went away during the session", now)
        self.devices.remove(device)

    def free(self, device: Device, ticket: str, now: float) -> None:
        """A server can take a session with this ticket."""
        if device.state == "busy" and device.user:
            self._charge(device, now)
        device.state, device.ticket, device.user, device.since = "free", ticket, "", now

    def busy(self, device: Device, ticket: str, user: str, now: float) -> None:
        """A session began."""
        known = device.user if device.state == "granted" and device.ticket == ticket else ""
        device.state, device.user, device.since, device.ticket = "busy", known or user, now, ""
        device.sessions += 1

    def fail(self, device: Device, text: str, now: float) -> None:
        """Remember that a session ended badly."""
        device.failures += 1
        self.failures.append(Failure(now, device.key, f"{device.host}:{device.port}", device.user, text))

    def ask(self, key: str, user: str, priority: int, now: float) -> Request:
        """A request joins the queue."""
        request = Request(key, user, priority, now, next(self._numbers))
        self.waiting.append(request)
        return request

    def leave(self, request: Request) -> None:
        """A request is withdrawn."""
        if request in self.waiting:
            self.waiting.remove(request)

    def grant(self, now: float) -> list[Request]:
        """Give free devices to those whose turn it is; the requests that got one."""
        granted = []
        for device in self.devices:
            wanted = [request for request in self.waiting if request.key == device.key]
            if device.state != "free" or not wanted:
                continue
            request = min(wanted, key=lambda request: self._rank(request, now))
            self.waiting.remove(request)
            request.granted, request.ticket = device, device.ticket
            device.state, device.user, device.since = "granted", request.user, now
            granted.append(request)
        return granted

    def unclaimed(self, now: float) -> list[Device]:
        """Devices to which a client was sent that has not come; they wait for a new ticket."""
        late = [d for d in self.devices if d.state == "granted" and now - d.since > self.claim_seconds]
        for device in late:
            device.state, device.user, device.since = "busy", "", now
        return late

    def give_back(self, request: Request, now: float) -> Device | None:
        """The device of a request whose client has gone without coming to it; None if the client came."""
        device = request.granted
        if device is None or device.state != "granted" or device.ticket != request.ticket:
            return None
        device.state, device.user, device.since = "busy", "", now
        return device

    def held(self, user: str) -> int:
        """Devices that a user has."""
        return sum(device.user == user and device.state != "free" for device in self.devices)

    def _rank(self, request: Request, now: float) -> tuple[float, int, float, int]:
        aged = request.priority + int((now - request.since) / AGEING_SECONDS)
        return -aged, self.held(request.user), self._use(request.user, now), request.number

    def _use(self, user: str, now: float) -> float:
        seconds, when = self._used.get(user, (0.0, now))
        decayed: float = seconds * 0.5 ** ((now - when) / HALF_LIFE_SECONDS)
        return decayed

    def _charge(self, device: Device, now: float) -> None:
        self._used[device.user] = self._use(device.user, now) + max(0.0, now - device.since), now
        if len(self._used) > 4096:  # those who used devices long ago count as new
            self._used = {user: row for user, row in self._used.items() if now - row[1] < 10 * HALF_LIFE_SECONDS}

    def summary(self, now: float) -> dict[str, Json]:
        """What `query_rpc_tracker` and the page show."""
        keys = sorted({device.key for device in self.devices} | {request.key for request in self.waiting})
        queue = {
            key: {
                "total": sum(d.key == key for d in self.devices),
                "free": sum(d.key == key and d.state == "free" for d in self.devices),
                "pending": sum(r.key == key for r in self.waiting),
            }
            for key in keys
        }
        devices = [
            {
                "key": d.key,
                "addr": [d.host, d.port],
                "state": d.state,
                "user": d.user,
                "seconds": int(now - d.since),
                "sessions": d.sessions,
                "failures": d.failures,
                "info": d.info,
            }
            for d in self.devices
        ]
        failures = [
            {"seconds_ago": int(now - f.when), "key": f.key, "address": f.address, "user": f.user, "text": f.text}
            for f in reversed(self.failures)
        ]
        waiting = [
            {"key": r.key, "user": r.user, "priority": r.priority, "seconds": int(now - r.since)} for r in self.waiting
        ]
        return {"queue_info": queue, "server_info": devices, "waiting": waiting, "failures": failures}
