"""The worker's key: one file, encrypted if a passphrase is given, and in any case readable by its owner alone."""

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
        """Returns where the key is and how to back it up, in words."""
        how = "encrypted with your passphrase, which is needed too" if self.encrypted else "NOT encrypted"
        return (
            f"The key of {self.address} is in {self.path} ({how}). Back it up: cp -p {self.path} /somewhere/safe/. "
            "Who has it can redeem and release in your name; without it what is not yet redeemed is lost."
        )


def find(folder: Path) -> Path | None:
    """Returns the key's file in `folder`, or None."""
    return next((folder / name for name in (ENCRYPTED, PLAIN) if (folder / name).is_file()), None)


def load(folder: Path, passphrase: str | None) -> Wallet:
    """Loads the key. Raises NotFound if there is none, Refused if the file or the passphrase is wrong."""
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
    """Makes a new key (Web3 keystore v3 if a passphrase is given); raises Conflict rather than replace one."""
    if existing := find(folder):
        raise Conflict(f"{existing} is there already")
    return _write(folder, PrivateKey(secrets.token_bytes(32)), passphrase)


def encrypt(folder: Path, passphrase: str) -> Wallet:
    """Encrypts a plain key. Deletes the plain file once the keystore is on disk and can be opened.

    Raises NotFound if there is no key, Conflict if it is already encrypted.
    """
    plain = load(folder, passphrase)
    if plain.encrypted:
        raise Conflict(f"{plain.path} is encrypted already")
    encrypted = _write(folder, plain.key, passphrase)
    if load(folder, passphrase) == encrypted:
        plain.path.unlink()
    return encrypted


def _write(folder: Path, key: PrivateKey, passphrase: str | None) -> Wallet:
    path = folder / (ENCRYPTED if passphrase else PLAIN)
    text = keystore.encrypted(key, passphrase) if passphrase else key.to_bytes().hex()
    durable.write(path, (text + "\n").encode())
    return Wallet(key, path)


def load_or_create(folder: Path, passphrase: str | None, plain: bool = True) -> Wallet:
    """Raises Refused if the key is, or would be, unencrypted and `plain` does not allow that."""
    existing = find(folder)
    if not plain and (existing.name == PLAIN if existing else passphrase is None):
        fix = "encrypt it with `gradmarket wallet encrypt`" if existing else "give a passphrase (--passphrase-file)"
        raise Refused(f"money is real here, and the key is in plain text: {fix}, or say --plain-key")
    return load(folder, passphrase) if existing else create(folder, passphrase)
