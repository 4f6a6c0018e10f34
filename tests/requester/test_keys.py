"""The service's keys at rest: plain on a local chain alone, else under a passphrase or by an explicit word."""

import stat
from pathlib import Path

import pytest
from pydantic import SecretStr

from gradmarket.market.errors import Refused
from requester import keys
from requester.keys import Lock
from requester.settings import RequesterSettings
from tests.lanes import FULL

PLAIN, BARE = Lock(None, plain=True), Lock(None, plain=False)
LOCKED = Lock("correct horse", plain=False)


def test_on_a_local_chain_a_key_is_made_once_in_plain_text(tmp_path: Path) -> None:
    made = keys.load_or_create_key(None, tmp_path / "signer", PLAIN)
    assert keys.load_or_create_key(None, tmp_path / "signer", PLAIN) == made
    assert stat.S_IMODE((tmp_path / "signer").stat().st_mode) == 0o600


def test_where_money_is_real_no_key_lies_in_plain_text(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(Refused, match="GRADMARKET_PASSPHRASE_FILE"):
            keys.load_or_create_key(None, tmp_path / "signer", BARE)
        keys.load_or_create_key(None, tmp_path / "signer", PLAIN)  # now one does, and is refused as well
    given = SecretStr("0x" + "11" * 32)
    assert keys.load_or_create_key(given, tmp_path / "other", BARE).to_bytes().hex() == "11" * 32


@FULL
def test_a_plain_key_goes_under_the_passphrase_and_opens_with_it_alone(tmp_path: Path) -> None:
    plain = keys.load_or_create_key(None, tmp_path / "signer", PLAIN)
    assert keys.load_or_create_key(None, tmp_path / "signer", LOCKED) == plain
    assert [path.name for path in tmp_path.iterdir()] == ["signer.json"]
    assert plain.to_bytes().hex() not in (tmp_path / "signer.json").read_text()
    assert stat.S_IMODE((tmp_path / "signer.json").stat().st_mode) == 0o600
    for wrong in (Lock("incorrect", plain=True), PLAIN):
        with pytest.raises(Refused):
            keys.load_or_create_key(None, tmp_path / "signer", wrong)


def test_the_passphrase_comes_from_a_setting_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("from the file\n")
    assert keys.load_key_lock(
        RequesterSettings(data=tmp_path, passphrase_file=tmp_path / "secret"), local=False
    ) == Lock("from the file", plain=False)
    both = RequesterSettings(data=tmp_path, passphrase=SecretStr("given"), passphrase_file=tmp_path / "secret")
    assert keys.load_key_lock(both, local=True) == Lock("given", plain=True)
    assert keys.load_key_lock(RequesterSettings(data=tmp_path, plain_keys=True), local=False) == PLAIN
    with pytest.raises(Refused, match="cannot be read"):
        keys.load_key_lock(RequesterSettings(data=tmp_path, passphrase_file=tmp_path / "absent"), local=False)


@pytest.mark.parametrize("written", [b"", b"0x12", b"no key", b"0" * 64, b"f" * 64, b"11" * 33, b"\xff\x00"])
@pytest.mark.parametrize("lock", [PLAIN, LOCKED], ids=["plain", "locked"])
def test_a_damaged_key_is_refused_with_its_file(tmp_path: Path, written: bytes, lock: Lock) -> None:
    (tmp_path / "signer").write_bytes(written)
    with pytest.raises(Refused, match="signer is no key"):
        keys.load_or_create_key(None, tmp_path / "signer", lock)
    with pytest.raises(Refused, match="GRADMARKET_SIGNER_KEY is no key"):
        keys.load_or_create_key(SecretStr(written.decode(errors="replace")), tmp_path / "signer", lock)
    assert (tmp_path / "signer").read_bytes() == written


@pytest.mark.parametrize("written", [b"", b"\xff\xfe", b"{}", b"[" * 100_000], ids=range(4))
def test_a_damaged_keystore_is_refused_with_its_file(tmp_path: Path, written: bytes) -> None:
    (tmp_path / "signer.json").write_bytes(written)
    with pytest.raises(Refused, match=r"signer\.json is no keystore"):
        keys.load_or_create_key(None, tmp_path / "signer", LOCKED)


@pytest.mark.parametrize("written", [b"", b"\n", b"\xff\xfe", b"two words"], ids=repr)
def test_a_damaged_token_is_refused_with_its_file(tmp_path: Path, written: bytes) -> None:
    (tmp_path / "token").write_bytes(written)
    with pytest.raises(Refused, match="token is no key, and no token"):
        keys.load_or_create_secret(None, tmp_path / "token")
