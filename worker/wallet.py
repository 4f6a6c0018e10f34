"""The worker's key: one file, encrypted where a passphrase is given, readable by its owner alone in any case."""

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from eth_keys.datatypes import PrivateKey

from gradmarket.contracts import keystore
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
        return Wallet(_key(path, passphrase), path)
    except (ValueError, Refused) as error:
        raise Refused(f"the wallet {path} cannot be read: {error}") from error


def _key(path: Path, passphrase: str | None) -> PrivateKey:
    if path.name == PLAIN:
        return PrivateKey(bytes.fromhex(path.read_text().strip()))
    if passphrase is None:
        raise Refused("it is encrypted: give GRADMARKET_WORKER_PASSPHRASE_FILE or GRADMARKET_WORKER_PASSPHRASE")
    return keystore.decrypted(path.read_text(), passphrase)


def create(folder: Path, passphrase: str | None) -> Wallet:
    """A new key (Web3 keystore v3 where a passphrase is given); raises Conflict rather than replace one."""
    if found := find(folder):
        raise Conflict(f"{found} is there already")
    return _write(folder, PrivateKey(secrets.token_bytes(32)), passphrase)


def encrypt(folder: Path, passphrase: str) -> Wallet:
    """Puts a plain key under a passphrase. The plain file goes when the keystore is on disk and opens again.

    Raises NotFound where there is no key, Conflict where it is encrypted already.
    """
    plain = load(folder, passphrase)
    if plain.encrypted:
        raise Conflict(f"{plain.path} is encrypted already")
    made = _write(folder, plain.key, passphrase)
    if load(folder, passphrase) == made:
        plain.path.unlink()
    return made


def _write(folder: Path, key: PrivateKey, passphrase: str | None) -> Wallet:
    path = folder / (ENCRYPTED if passphrase else PLAIN)
    text = keystore.encrypted(key, passphrase) if passphrase else key.to_bytes().hex()
    durable.write(path, (text + "\n").encode())
    return Wallet(key, path)


def load_or_create(folder: Path, passphrase: str | None, plain: bool = True) -> Wallet:
    """Raises Refused for a key that is, or would be, unencrypted, where that is not `plain`ly allowed."""
    found = find(folder)
    if not plain and (found.name == PLAIN if found else passphrase is None):
        fix = "encrypt it with `gradmarket wallet encrypt`" if found else "give a passphrase (--passphrase-file)"
        raise Refused(f"money is real here, and the key is in plain text: {fix}, or say --plain-key")
    return load(folder, passphrase) if found else create(folder, passphrase)
