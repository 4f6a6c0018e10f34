"""The service's keys: given by the operator, or made once and kept in the data folder, readable by the owner alone.

Under a passphrase they are Web3 keystores. In plain text they lie only on a local chain, or where that is asked for.
"""

import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from eth_keys.datatypes import PrivateKey
from pydantic import SecretStr

from gradmarket.contracts import keystore
from gradmarket.market.errors import Refused
from gradmarket.requester.settings import RequesterSettings

FIX: Final = "GRADMARKET_PASSPHRASE_FILE or GRADMARKET_PASSPHRASE"


@dataclass(frozen=True, slots=True)
class Lock:
    """What keys are kept under: a passphrase, or, where `plain`, none."""

    passphrase: str | None
    plain: bool


def lock(settings: RequesterSettings, local: bool) -> Lock:
    """From a setting, its file, or the keyboard where a keystore waits for it. Raises Refused for a bad file."""
    given = settings.passphrase.get_secret_value() if settings.passphrase else None
    if given is None and settings.passphrase_file is not None:
        given = keystore.passphrase_in(settings.passphrase_file)
    folder = settings.data / "keys"
    if given is None and any(folder.glob("*.json")):
        given = keystore.asked(str(folder))
    return Lock(given, local or settings.plain_keys)


def key(given: SecretStr | None, path: Path, lock: Lock) -> PrivateKey:
    """A secp256k1 key: given in hexadecimal, or the one at `path`, made and encrypted as the lock says.

    Raises Refused where it would lie, or lies, in plain text against the lock, or the passphrase is another one.
    """
    sealed = path.with_suffix(".json")
    if given is not None:
        return PrivateKey(bytes.fromhex(given.get_secret_value().removeprefix("0x")))
    if sealed.exists():
        if lock.passphrase is None:
            raise Refused(f"{sealed} is encrypted: give {FIX}")
        return keystore.decrypted(sealed.read_text(), lock.passphrase)
    if lock.passphrase is not None:
        return _sealed(path, sealed, lock.passphrase)
    if not lock.plain:
        raise Refused(
            f"money is real here, and {path} would be in plain text: give {FIX}, or GRADMARKET_PLAIN_KEYS=true"
        )
    return PrivateKey(bytes.fromhex(secret(None, path)))


def _sealed(plain: Path, sealed: Path, passphrase: str) -> PrivateKey:
    """A new key, or the plain one there, in a keystore; the plain file goes once the keystore opens again."""
    made = PrivateKey(bytes.fromhex(plain.read_text().strip()) if plain.exists() else secrets.token_bytes(32))
    _write(sealed, keystore.encrypted(made, passphrase))
    if keystore.decrypted(sealed.read_text(), passphrase) == made:
        plain.unlink(missing_ok=True)
    return made


def secret(given: SecretStr | None, path: Path) -> str:
    """32 random bytes in hexadecimal, unless given."""
    if given is not None:
        return given.get_secret_value()
    if not path.exists():
        _write(path, secrets.token_hex(32))
    return path.read_text().strip()


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)
