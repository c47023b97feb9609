"""The shared secret: where it comes from, and when there must be one.

In: a file named on the command line, `ARMILLARY_RPC_SECRET`, or `~/.config/armillary/rpc-secret`. Out: its bytes, or
None. Invariant: a secret file that others may read is refused; off loopback there is a secret, or the caller said
`insecure`. `armc rpc init` makes the file (`make_secret`). How the secret is used: `protocol.py`.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from armillary.base.config import setting
from armillary.base.files import make_folder, read_regular, unwritable
from armillary.errors import AuthError, ConfigError, Span
from armillary.rpc.protocol import is_loopback

_SHORTEST = 16  # characters; `make_secret` writes 64
_HINT = "run `armc rpc init` once, copy the secret to the other machines, or name one with --secret-file"


def default_file() -> Path:
    """Where `armc rpc init` puts the secret."""
    folder: Path = setting("ARMILLARY_CONFIG_DIR")
    return folder / "rpc-secret"


def named_secret(file: str | os.PathLike[str] | None = None) -> bytes | None:
    """The secret of the file, else of the environment."""
    if file is not None:
        return read_secret(Path(file))
    text = setting("ARMILLARY_RPC_SECRET")
    return _checked(text, "ARMILLARY_RPC_SECRET") if text else None


def find_secret(file: str | os.PathLike[str] | None = None) -> bytes | None:
    """The secret of the file, else of the environment, else of the default file if it is there."""
    result = named_secret(file)
    if result is None and default_file().exists():
        return read_secret(default_file())
    return result


def read_secret(path: Path) -> bytes:
    """The secret of a file that belongs to this user alone."""
    try:
        state = path.stat()
        text = read_regular(path).decode("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the secret cannot be read: {error}", span=Span(str(path)), hint=_HINT) from None
    if state.st_mode & 0o077:
        message = f"other users may read the secret (mode {state.st_mode & 0o777:o})"
        raise ConfigError(message, span=Span(str(path)), hint=f"chmod 600 {path}")
    return _checked(text, str(path))


def _checked(text: str, place: str) -> bytes:
    secret = text.strip()
    if len(secret) < _SHORTEST or not secret.isascii() or not secret.isprintable():
        message = f"a secret is at least {_SHORTEST} printable ASCII characters"
        raise ConfigError(message, span=Span(place), hint="`armc rpc init` makes one")
    return secret.encode()


def make_secret(path: Path, replace: bool = False) -> str:
    """Write a new secret, readable by this user alone; ConfigError if there is one already."""
    make_folder(path.parent)
    text = secrets.token_hex(32)
    if replace:
        path.unlink(missing_ok=True)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        raise ConfigError("there is a secret already", span=Span(str(path)), hint="--force makes a new one") from None
    except OSError as error:
        raise unwritable(path, error) from None
    with os.fdopen(handle, "w") as stream:
        stream.write(text + "\n")
    return text


def secret_to_listen(host: str, file: str | os.PathLike[str] | None, insecure: bool) -> bytes | None:
    """The secret to demand from whoever connects to `host`; on loopback only one that was named."""
    if insecure:
        return None
    if is_loopback(host):
        return named_secret(file)
    secret = find_secret(file)
    if secret is None:
        message = f"listening on {host}, which others can reach, needs a secret: whoever connects can run code here"
        raise AuthError(message, hint=f"{_HINT}; --insecure goes without")
    return secret


def secret_to_connect(host: str, auth: str, secret: bytes | None, insecure: bool) -> bytes | None:
    """The secret to prove to a peer at `host` that asks for `auth`."""
    if auth == "none":
        if is_loopback(host) or insecure:
            return None
        message = f"the peer at {host} asks for no secret: it could be anybody"
        raise AuthError(message, hint="start it with a secret, or pass insecure=True (ARMILLARY_RPC_INSECURE=1)")
    if auth != "hmac-sha256":
        raise AuthError(f"the peer at {host} asks for an unknown proof: {auth[:40]!r}")
    if secret is None:
        raise AuthError(f"the peer at {host} asks for the secret, and there is none here", hint=_HINT)
    return secret
