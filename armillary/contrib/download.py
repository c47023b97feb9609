"""Files that scripts used to download: found in a local folder, or asked for by name.

In: an address and a file name. Out: a path in the folder `testdata` of the cache (ARMILLARY_CACHE_DIR), if it is there.
Invariant: nothing is fetched over a network; a file that is not there is an error that says which file to put where.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from armillary.base.config import setting
from armillary.errors import ConfigError


def download_testdata(
    url: str, relpath: str, module: str | Sequence[str] | None = None, overwrite: bool = False
) -> str:
    """The path of a file that is in the local folder already; `module` names a folder in it, or folders in folders."""
    del overwrite
    folders = [module] if isinstance(module, str) else list(module or ())
    path = Path(setting("ARMILLARY_CACHE_DIR")).joinpath("testdata", *folders, relpath)
    if path.is_file():
        return str(path)
    hint = f"fetch {url} yourself and save it as {path}"
    raise ConfigError(f"the file {relpath!r} is not here, and nothing is downloaded", hint=hint)


def download(url: str, path: str, overwrite: bool = False, size_compare: bool = False, retries: int = 3) -> None:
    """Succeed where the file is there already."""
    del overwrite, size_compare, retries
    if not Path(path).is_file():
        hint = f"fetch {url} yourself and save it there"
        raise ConfigError(f"{path} is not here, and nothing is downloaded", hint=hint)
