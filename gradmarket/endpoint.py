"""Finds the service: from an option, the environment, or the file of `gradmarket serve` on this machine."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gradmarket.client import AsyncRequesterClient, RequesterClient
from gradmarket.market.errors import NotFound, Refused
from gradmarket.network.environment import is_address

URL: Final = "GRADMARKET_URL"
TOKEN: Final = "GRADMARKET_TOKEN"
DATA: Final = "GRADMARKET_DATA"


@dataclass(frozen=True)
class Endpoint:
    url: str
    token: str | None

    def market(self) -> RequesterClient:
        return RequesterClient(self.url, self.token)

    def async_market(self) -> AsyncRequesterClient:
        return AsyncRequesterClient(self.url, self.token)


def data_folder(data: Path | None = None) -> Path:
    return data or Path(os.environ.get(DATA) or "data")


def find_endpoint(url: str | None = None, token: str | None = None, data: Path | None = None) -> Endpoint:
    """Returns the given values, else the environment's, else the data folder's. Raises NotFound, or Refused.

    The folder's token belongs to the folder's service: it is sent to no other address.
    """
    folder = data_folder(data)
    here = _read_line(folder / "url")
    address = url or os.environ.get(URL) or here
    if address is None:
        fix = f"start one with `gradmarket serve`, or name one with --market or {URL}"
        raise NotFound(f"no service: nothing is written in {folder / 'url'}", fix)
    if not isinstance(address, str) or not is_address(address):
        raise Refused(f"{str(address)[:200]!r} is not the address of a service", "write it like http://127.0.0.1:8700")
    credential = token or os.environ.get(TOKEN)
    if credential is None and here is not None and address.rstrip("/") == here.rstrip("/"):
        credential = _read_line(folder / "keys" / "token")
    if credential and not (isinstance(credential, str) and credential.isprintable() and credential.isascii()):
        raise Refused("the token is not an API token", "copy it again: letters, digits and dashes")
    return Endpoint(address, credential)


def _read_line(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip() or None
    except FileNotFoundError:
        return None
