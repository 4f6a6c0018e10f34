"""The worker's key: one file, encrypted where a passphrase is given, readable by its owner alone in any case."""

import json
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from eth_account import Account
from eth_keys.datatypes import PrivateKey

from gradmarket.market.errors import Conflict, NotFound, Refused
from gradmarket.market.signing import address_of
from gradmarket.market.terms import Address
from gradmarket.worker import durable

PLAIN: Final = "wallet.key"
ENCRYPTED: Final = "wallet.json"


@dataclass(frozen=True)
class Wallet:
    key: PrivateKey
    path: Path

    @property
    def address(self) -> Address:
        return address_of(self.key)

    @property
    def encrypted(self) -> bool:
        return self.path.name == ENCRYPTED

    def backup(self) -> str:
        """Where the key is and how to keep it, for a person."""
        how = "encrypted with your passphrase, which is needed too" if self.encrypted else "NOT encrypted"
        return (
            f"The key of {self.address} is in {self.path} ({how}). Back it up: cp -p {self.path} /somewhere/safe/. "
            "Who has it can redeem and release in your name; without it what is not yet redeemed is lost."
        )


def find(folder: Path) -> Path | None:
    """The file of the key in `folder`, or None."""
    return next((folder / name for name in (ENCRYPTED, PLAIN) if (folder / name).is_file()), None)


def load(folder: Path, passphrase: str | None) -> Wallet:
    """Raises NotFound where there is no key, Refused where the file or the passphrase is wrong."""
    path = find(folder)
    if path is None:
        raise NotFound(f"no wallet in {folder}")
    try:
        secret = _decrypt(path, passphrase) if path.name == ENCRYPTED else bytes.fromhex(path.read_text().strip())
        return Wallet(PrivateKey(secret), path)
    except (ValueError, TypeError, KeyError) as error:
        raise Refused(f"the wallet {path} cannot be read: {error}") from error


def _decrypt(path: Path, passphrase: str | None) -> bytes:
    if passphrase is None:
        raise Refused(f"the wallet {path} is encrypted: give GRADMARKET_WORKER_PASSPHRASE")
    return bytes(Account.decrypt(json.loads(path.read_text()), passphrase))


def create(folder: Path, passphrase: str | None) -> Wallet:
    """A new key (Web3 keystore v3 where a passphrase is given); raises Conflict rather than replace one."""
    if found := find(folder):
        raise Conflict(f"{found} is there already")
    key = PrivateKey(secrets.token_bytes(32))
    path = folder / (ENCRYPTED if passphrase else PLAIN)
    text = json.dumps(Account.encrypt(key, passphrase)) if passphrase else key.to_bytes().hex()
    durable.write(path, (text + "\n").encode())
    return Wallet(key, path)


def load_or_create(folder: Path, passphrase: str | None) -> Wallet:
    return load(folder, passphrase) if find(folder) else create(folder, passphrase)
