"""Where the service is: named by an option, the environment, or what `gradmarket serve` wrote down on this machine."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gradmarket.client import RequesterClient
from gradmarket.market.errors import NotFound

URL: Final = "GRADMARKET_URL"
TOKEN: Final = "GRADMARKET_TOKEN"
DATA: Final = "GRADMARKET_DATA"


@dataclass(frozen=True)
class Endpoint:
    url: str
    token: str | None

    def market(self) -> RequesterClient:
        return RequesterClient(self.url, self.token)


def data_folder(data: Path | None = None) -> Path:
    return data or Path(os.environ.get(DATA, "data"))


def find(url: str | None = None, token: str | None = None, data: Path | None = None) -> Endpoint:
    """What is given, else the environment, else the service's data folder. Raises NotFound, which names the fix.

    The folder's token belongs to the folder's service: it is sent to no other address.
    """
    folder = data_folder(data)
    here = _line(folder / "url")
    found = url or os.environ.get(URL) or here
    if found is None:
        fix = f"start one with `gradmarket serve`, or name one with --market or {URL}"
        raise NotFound(f"no service: nothing is written in {folder / 'url'}; {fix}")
    known = token or os.environ.get(TOKEN)
    if known is None and here is not None and found.rstrip("/") == here.rstrip("/"):
        known = _line(folder / "keys" / "token")
    return Endpoint(found, known)


def _line(path: Path) -> str | None:
    try:
        return path.read_text().strip() or None
    except FileNotFoundError:
        return None
