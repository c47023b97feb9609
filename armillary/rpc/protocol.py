"""The protocol, version 1: who says what, in which frames, within which limits.

In and out: frames, as written here. Invariant: nothing is ever unpickled or evaluated.

FRAME   magic (4 bytes) | header size (uint32) | payload size (uint64) | header: a JSON object | payload: bytes | tag
        Integers are little-endian; sizes are checked before anything is read. Magic "ARM1": no tag. Magic "ARMS": a
        tag of 32 bytes, HMAC-SHA256 with the sender's key over the frame's number in its direction (uint64, from
        0) and all bytes before the tag. Numbers in headers are int64.
OPEN    The side that connected speaks first. c: client; s: server, tracker or proxy; hellos are always ARM1.
        c  {rpc: 1, nonce: 64 hex digits}
        s  {rpc: 1, nonce: 64 hex digits, role: server|tracker|proxy, auth: none|hmac-sha256}
        From here on frames are sealed (ARMS) if auth says so. Keys: HMAC-SHA256(secret, "armillary-rpc-1" | direction |
        role | both nonces | SHA-256 of the TLS certificate, if any), direction "client" or "server". So the client's
        first sealed frame proves that it knows the secret, the answer that the server does, and a recorded frame fits
        no other connection.
        c  {want: session|serve|client|data, ...}    s  {ok: {...}} or {error: text, kind: its class, hint: text}
        An error of kind AuthError may come unsealed: the secrets differ. Until a connection has proved itself, headers
        are limited to 4 KiB, payloads to 0, and all of this to 5 seconds.
ANSWERS Every request {op: ..., ...} gets one {ok: value} with a payload, or {error, kind, hint}; one at a time.
TRACKER want client {user}: request {key, priority, wait_ms, absent_ms} -> {host, port, ticket, key, tls} when a device
        is free (absent_ms: how long to wait while no server has the key); summary {} -> JSON of devices, queues,
        sessions, failures and tuning; progress {task, key, trials, total, failed, flops, best, error} -> {}: how many
        trials of a task a client has done, operations per second of the last one and of the best.
        want serve {key, port, host, tls, info}: then messages without answers. From the server:
        free {ticket}, busy {ticket, user}, done {ticket, error}, ping; from the tracker: revoke {ticket} (nobody came
        with it: make another), pong. A server silent for 20 s is dropped.
PROXY   want serve, as at a tracker; from the proxy: dial {id}. The server connects with want data {id}, for the client.
SESSION want session {ticket, key, user, session_ms} -> {os, arch, threads, ...}. Then (h, t: handles, integers)
        write {path, offset} + bytes; read {path, offset, size} -> {size: of all} + bytes; list -> JSON; remove {path}
        load {path} -> {module: h, graph: bool} + descriptor JSON; release {module|tensor|graph: h}
        alloc {shape, dtype, device: [type, id]} -> {tensor: h}; copy {source: t, target: t}
        put {tensor, offset} + bytes; get {tensor, offset, size} -> bytes
        call {module, name, tensors: [t], scalars: [int64; floats as the bits of a double]}
        time: call, and number, repeat, min_repeat_us, zero_limit, cooldown_us, cooldown_every, flush_bytes -> float64s
        device {device} -> {objection: text, "" if it can be used} + JSON: facts of its driver
        graph {module, json: path or "", device} -> {graph: h} + JSON: inputs [{name, shape, dtype, set}], outputs [...]
        graph_set {graph, name, tensor}; graph_output {graph, index} -> {tensor: h, shape, dtype}; graph_run {graph};
        graph_input {graph, name of a state}: as an output; graph_reset {graph}: they are 0; profile {graph} -> JSON
        graph_params {graph, path} -> {count}; graph_time: as time
        A path is relative, inside the session's folder; files and tensors go in pieces of at most 8 MiB.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import secrets
import struct
from collections.abc import Container
from typing import Any

from armillary.artifact.json_form import dump, parse
from armillary.base.record import record
from armillary.errors import ArmillaryError, ArtifactError, AuthError, RPCError, errors_by_name

VERSION = 1
PLAIN, SEALED = b"ARM1", b"ARMS"
PREFIX = struct.Struct("<4sIQ")
TAG_BYTES = 32
NONCE_BYTES = 32
MAX_HEADER, MAX_PAYLOAD = 1 << 16, 1 << 24
OPEN_HEADER, OPEN_PAYLOAD = 1 << 12, 0
CHUNK = 1 << 23  # bytes of a file or tensor in one frame
OPEN_SECONDS = 5.0  # for all of the handshake
FRAME_SECONDS = 60.0  # for the rest of a frame of which a part has come
PING_SECONDS, SILENT_SECONDS = 5.0, 20.0
_COPY = "copy the secret of `armc rpc init` to both"
_LABEL = b"armillary-rpc-1"

Json = Any  # a decoded JSON value: Any, because its shape is checked where it is used


@record(slots=True)
class Frame:
    """One message: a JSON object and raw bytes."""

    header: dict[str, Json]
    payload: bytes | memoryview = b""


@record(slots=True)
class Limits:
    """The largest header and payload that are read."""

    header: int
    payload: int


BEFORE_OPEN, AFTER_OPEN = Limits(OPEN_HEADER, OPEN_PAYLOAD), Limits(MAX_HEADER, MAX_PAYLOAD)


class Seal:
    """The keys of a connection and the numbers of its frames."""

    def __init__(self, sending: bytes, receiving: bytes) -> None:
        self._keys = sending, receiving
        self._numbers = [0, 0]

    def tag(self, way: int, *parts: bytes | memoryview) -> bytes:
        """The tag of the next frame that is sent (way 0) or received (way 1)."""
        mac = hmac.new(self._keys[way], struct.pack("<Q", self._numbers[way]), "sha256")
        for part in parts:
            mac.update(part)
        self._numbers[way] += 1
        return mac.digest()


def seal_of(secret: bytes, role: str, nonces: tuple[str, str], binding: bytes, is_client: bool) -> Seal:
    """The seal of one end; `nonces` are the client's and the server's."""
    rest = b"|".join((role.encode(), nonces[0].encode(), nonces[1].encode(), binding))
    client, server = (
        hmac.new(secret, _LABEL + b"|" + way + b"|" + rest, "sha256").digest() for way in (b"client", b"server")
    )
    return Seal(client, server) if is_client else Seal(server, client)


def encode(frame: Frame, seal: Seal | None) -> list[bytes | memoryview]:
    """The bytes of a frame, in pieces."""
    header = dump(frame.header).encode()
    if len(header) > MAX_HEADER or len(frame.payload) > MAX_PAYLOAD:
        message = f"a message of {len(header)} + {len(frame.payload)} bytes is too large"
        raise RPCError(message, hint=f"the limits are {MAX_HEADER} and {MAX_PAYLOAD}; send it in pieces")
    prefix = PREFIX.pack(SEALED if seal else PLAIN, len(header), len(frame.payload))
    pieces: list[bytes | memoryview] = [prefix + header, frame.payload] if len(frame.payload) else [prefix + header]
    return [*pieces, seal.tag(0, *pieces)] if seal else pieces


def sizes(prefix: bytes, limits: Limits, is_sealed: bool) -> tuple[int, int, bool]:
    """(header size, payload size, sealed) that the first bytes of a frame announce.

    Where a sealed frame is due, a plain one may still come: `decode` makes an AuthError of it.
    """
    magic, header, payload = PREFIX.unpack(prefix)
    if magic not in (PLAIN, SEALED) or (magic == SEALED and not is_sealed):
        raise RPCError(f"the peer does not speak this protocol: it sent {magic!r}")
    if magic == PLAIN and is_sealed:
        limits = BEFORE_OPEN
    if header > limits.header or payload > limits.payload:
        message = f"a frame of {header} + {payload} bytes is refused"
        raise RPCError(message, hint=f"the limits are {limits.header} and {limits.payload}")
    return header, payload, magic == SEALED


def decode(prefix: bytes, header: bytes, payload: bytes | memoryview, tag: bytes, seal: Seal | None) -> Frame:
    """The frame of these bytes; AuthError if the tag is not what the seal gives."""
    if seal is not None and tag:
        pieces = (prefix + header, payload) if len(payload) else (prefix + header,)
        if not hmac.compare_digest(seal.tag(1, *pieces), tag):
            raise AuthError("the secrets of the two sides differ", hint=_COPY)
    try:
        value = parse(header, "header", MAX_HEADER)
    except ArtifactError as error:
        raise RPCError(f"damaged message: {error.message}") from None
    if not isinstance(value, dict):
        raise RPCError("damaged message: its header is no JSON object")
    if seal is not None and not tag:  # never acted upon: anybody may have sent it
        message = str(value.get("error", ""))[:1000] if value.get("kind") == "AuthError" else ""
        raise AuthError(message or "the peer sent a message without the tag that the secret demands", hint=_COPY)
    return Frame(value, payload)


def new_nonce() -> str:
    """64 random hex digits."""
    return os.urandom(NONCE_BYTES).hex()


def checked_nonce(header: dict[str, Json]) -> str:
    """The nonce of a hello of our version."""
    if header.get("rpc") != VERSION:
        raise RPCError(f"the peer speaks version {str(header.get('rpc'))[:20]} of the protocol, this is {VERSION}")
    nonce = header.get("nonce")
    if not isinstance(nonce, str) or len(nonce) != 2 * NONCE_BYTES or not set(nonce) <= set("0123456789abcdef"):
        raise RPCError("damaged hello: it has no nonce of 64 hex digits")
    return nonce


def text_of(header: dict[str, Json], key: str, limit: int = 256, default: str | None = None) -> str:
    """A printable text of a header."""
    value = header.get(key, default)
    if not isinstance(value, str) or len(value) > limit or not value.isprintable():
        raise RPCError(f"{key}: a printable text of at most {limit} characters is expected, got {str(value)[:40]!r}")
    return value


def int_of(header: dict[str, Json], key: str, low: int, high: int, default: int | None = None) -> int:
    """An integer of a header within [low, high]."""
    value = header.get(key, default)
    if type(value) is not int or not low <= value <= high:
        raise RPCError(f"{key}: an integer in [{low}, {high}] is expected, got {str(value)[:40]!r}")
    return value


def refusal(error: ArmillaryError) -> dict[str, Json]:
    """The header that reports an error."""
    return {"error": error.message[:4000], "kind": type(error).__name__, "hint": error.hint[:1000]}


def answer(header: dict[str, Json]) -> Json:
    """The value of an answer; what the peer refused is raised as the error that it was there."""
    if "ok" in header:
        return header["ok"]
    kind = errors_by_name().get(str(header.get("kind")), RPCError)
    raise kind(str(header.get("error", "the peer sent no answer"))[:4000], hint=str(header.get("hint", ""))[:1000])


def binding_of(certificate: bytes | None) -> bytes:
    """What ties the keys to the TLS channel: both ends see the same certificate, or somebody sits between them."""
    return hashlib.sha256(certificate).hexdigest().encode() if certificate else b""


def is_loopback(host: str) -> bool:
    """Whether an address (or the name localhost) can only be reached from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def random_key(prefix: str, cmap: Container[str] | None = None) -> str:
    """`prefix` and a random end, under which one server is known to a tracker; none that `cmap` has."""
    while (key := f"{prefix}:{secrets.token_hex(8)}") in (cmap or ()):
        pass
    return key


def split_random_key(key: str) -> tuple[str, str]:
    """The prefix and the end of a `random_key`."""
    prefix, _, end = key.rpartition(":")
    return prefix, end
