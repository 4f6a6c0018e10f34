"""The worker's key: one file, encrypted if a passphrase is given, and in any case readable by its owner alone."""

import hashlib
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from eth_keys.datatypes import PrivateKey

from contracts import keystore
from gradmarket.market.errors import Conflict, NotFound, Refused
from gradmarket.market.signing import address_of
from gradmarket.market.terms import Address
from worker import durable

PLAIN: Final = "wallet.key"
ENCRYPTED: Final = "wallet.json"
BACKED_UP: Final = "wallet.backed-up"
"""The digest of the key's file that was backed up last."""


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

    def describe_key_file(self) -> str:
        """Returns a text on the key's place, and on its backup unless it has one."""
        how = "encrypted with your passphrase, which is needed too" if self.encrypted else "NOT encrypted"
        place = f"The key of {self.address} is in {self.path} ({how})."
        if is_backed_up(self.path.parent):
            return f"{place} It is backed up."
        return (
            f"{place} It has NO backup: gradmarket wallet backup FOLDER --data {self.path.parent}. "
            "Its holder can redeem and release in your name; without it what is not yet redeemed is lost."
        )


def find_key_file(folder: Path) -> Path | None:
    """Returns the key's file in `folder`, or None."""
    return next((folder / name for name in (ENCRYPTED, PLAIN) if (folder / name).is_file()), None)


def load_wallet(folder: Path, passphrase: str | None) -> Wallet:
    """Loads the key. Raises NotFound if the folder has none, Refused if the file or the passphrase is wrong."""
    path = find_key_file(folder)
    if path is None:
        remedy = "name the worker's folder with --data, or make a key with `gradmarket wallet new`"
        raise NotFound(f"no wallet in {folder}", remedy)
    try:
        if path.name == PLAIN:
            return Wallet(keystore.parse_key(path.read_text(errors="replace"), path.name), path)
        if passphrase is None:
            raise Refused("it is encrypted: give GRADMARKET_WORKER_PASSPHRASE_FILE or GRADMARKET_WORKER_PASSPHRASE")
        return Wallet(keystore.decrypt_key(path.read_text(errors="replace"), passphrase, path.name), path)
    except Refused as error:
        raise Refused(f"the wallet {path} cannot be read: {error.detail}", error.remedy) from error


def create_wallet(folder: Path, passphrase: str | None) -> Wallet:
    """Makes a new key (Web3 keystore v3 if a passphrase is given); raises Conflict rather than replace one."""
    if existing := find_key_file(folder):
        raise Conflict(f"{existing} is there already", "name another folder with --data: no key is ever replaced")
    return write_wallet(folder, PrivateKey(secrets.token_bytes(32)), passphrase)


def is_backed_up(folder: Path) -> bool:
    """Returns whether the present file of the key was backed up."""
    path, note = find_key_file(folder), folder / BACKED_UP
    return path is not None and note.is_file() and note.read_bytes() == compute_digest_line(path.read_bytes())


def compute_digest_line(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode() + b"\n"


def write_wallet(folder: Path, key: PrivateKey, passphrase: str | None) -> Wallet:
    path = folder / (ENCRYPTED if passphrase else PLAIN)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    text = keystore.encrypt_key(key, passphrase) if passphrase else key.to_bytes().hex()
    durable.write_file_atomically(path, (text + "\n").encode())
    return Wallet(key, path)


def load_or_create(folder: Path, passphrase: str | None, plain: bool = True) -> Wallet:
    """Returns the wallet, made if the folder has none. Raises Refused if its key is, or would be, plain against
    `plain`."""
    existing = find_key_file(folder)
    if not plain and (existing.name == PLAIN if existing else passphrase is None):
        fix = "encrypt it with `gradmarket wallet encrypt`" if existing else "give a passphrase (--passphrase-file)"
        raise Refused(f"money is real here, and the key is in plain text: {fix}, or pass --plain-key")
    return load_wallet(folder, passphrase) if existing else create_wallet(folder, passphrase)
