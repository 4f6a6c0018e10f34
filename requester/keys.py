"""The service's keys: given by the operator, or created once in the data folder, readable by the owner alone.

With a passphrase they are stored as Web3 keystores. In plain text they are stored only on a local chain, or where the
settings allow it.
"""

import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from eth_keys.datatypes import PrivateKey
from pydantic import SecretStr

from contracts import keystore
from gradmarket.market.errors import Refused
from requester.settings import RequesterSettings

FIX: Final = "GRADMARKET_PASSPHRASE_FILE or GRADMARKET_PASSPHRASE"


@dataclass(frozen=True, slots=True)
class Lock:
    """How keys are stored: under a passphrase; without one in plain text, if `plain` allows that."""

    passphrase: str | None
    plain: bool


def load_key_lock(settings: RequesterSettings, local: bool) -> Lock:
    """Reads the passphrase from a setting, a file or, for a keystore, the keyboard. Raises Refused for a bad file."""
    passphrase = settings.passphrase.get_secret_value() if settings.passphrase else None
    if passphrase is None and settings.passphrase_file is not None:
        passphrase = keystore.passphrase_in(settings.passphrase_file)
    folder = settings.data / "keys"
    if passphrase is None and any(folder.glob("*.json")):
        passphrase = keystore.ask_passphrase(str(folder))
    return Lock(passphrase, local or settings.plain_keys)


def load_or_create_key(given: SecretStr | None, path: Path, lock: Lock) -> PrivateKey:
    """Returns a secp256k1 key: `given` in hexadecimal, or the one at `path`, created and encrypted by the lock.

    Raises Refused where the lock forbids plain text and the key is, or would be, stored so; or the passphrase is wrong.
    """
    sealed = path.with_suffix(".json")
    if given is not None:
        return keystore.parse_key(given.get_secret_value(), f"GRADMARKET_{path.name.upper()}_KEY")
    if sealed.exists():
        if lock.passphrase is None:
            raise Refused(f"{sealed} is encrypted: give {FIX}")
        return keystore.decrypt_key(sealed.read_text(errors="replace"), lock.passphrase, str(sealed))
    if lock.passphrase is not None:
        # stores a new key, or the plain one, in a keystore; deletes the plain file once the keystore can be decrypted
        written = path.read_text(errors="replace") if path.exists() else secrets.token_hex(32)
        private = keystore.parse_key(written, str(path))
        _write_private_file(sealed, keystore.encrypt_key(private, lock.passphrase))
        if keystore.decrypt_key(sealed.read_text(), lock.passphrase, str(sealed)) == private:
            path.unlink(missing_ok=True)
        return private
    if not lock.plain:
        raise Refused(
            f"money is real here, and {path} would be in plain text: give {FIX}, or GRADMARKET_PLAIN_KEYS=true"
        )
    return keystore.parse_key(load_or_create_secret(None, path), str(path))


def load_or_create_secret(given: SecretStr | None, path: Path) -> str:
    """Returns the secret: the given one, or that at `path`, created there as 32 random bytes in hexadecimal.

    Raises Refused where the file has no word that a header can carry: no caller could send such a token.
    """
    if given is not None:
        return given.get_secret_value()
    if not path.exists():
        _write_private_file(path, secrets.token_hex(32))
    written = path.read_text(errors="replace").strip()
    if not re.fullmatch("[!-~]+", written):
        raise Refused(f"{path} is no key, and no token", "put its copy back, such as a backup's")
    return written


def _write_private_file(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)
