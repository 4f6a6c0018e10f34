"""Encrypts keys as Web3 Secret Storage v3, and reads passphrases, which are never command-line arguments."""

import getpass
import json
import re
import sys
from pathlib import Path
from typing import Final

from eth_account import Account
from eth_keys.datatypes import PrivateKey

from gradmarket.market.errors import Refused

ORDER: Final = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
"""Of the group of secp256k1 (SEC 2, 2.4.1): a private key is from 1 to ORDER - 1."""

_NAME_FILE: Final = "name a file that you may read, whose first line is the passphrase"


def parse_key(written: str, place: str) -> PrivateKey:
    """Returns the key in hexadecimal. Raises Refused, in which `place` names the setting or file, where it is none."""
    digits = written.strip().removeprefix("0x")
    if not re.fullmatch("[0-9a-fA-F]{64}", digits) or not 0 < int(digits, 16) < ORDER:
        raise Refused(f"{place} is no key", "it has 64 hexadecimal digits: write them, or put its copy back")
    return PrivateKey(bytes.fromhex(digits))


def encrypt_key(key: PrivateKey, passphrase: str) -> str:
    """Returns the keystore's JSON (scrypt, aes-128-ctr); takes about a second, which slows down guessing."""
    return json.dumps(Account.encrypt(key, passphrase))


def decrypt_key(text: str, passphrase: str, place: str) -> PrivateKey:
    """Returns the keystore's key; raises Refused, which names its `place`, if it or the passphrase is wrong."""
    try:
        return PrivateKey(bytes(Account.decrypt(json.loads(text), passphrase)))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        remedy = "give the passphrase that it was made with, or put the file's copy back"
        raise Refused(f"{place} is no keystore, or not of this passphrase: {error}", remedy) from error


def passphrase_in(path: Path) -> str:
    """Returns the first line of a file. Raises Refused if the file cannot be read or the line is empty."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise Refused(f"the passphrase file {path} cannot be read: {error.strerror}", _NAME_FILE) from error
    except UnicodeError as error:
        raise Refused(f"the passphrase file {path} is not text in UTF-8", _NAME_FILE) from error
    if not lines or not lines[0]:
        raise Refused(f"the passphrase file {path} has no passphrase in its first line", _NAME_FILE)
    return lines[0]


def ask_passphrase(purpose: str, twice: bool = False) -> str | None:
    """Prompts for a passphrase without echo; returns None without a terminal or if nothing was typed.

    Raises Refused if it is asked for twice and the two passphrases differ.
    """
    if not sys.stdin.isatty():
        return None
    typed = getpass.getpass(f"Passphrase of {purpose}: ")
    if twice and getpass.getpass("Once more: ") != typed:
        raise Refused("the two passphrases differ")
    return typed or None
