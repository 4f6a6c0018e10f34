"""The key: made once, kept from others, readable with its passphrase alone, never replaced."""

import errno
import json
import re
import resource
import stat
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from eth_keys.datatypes import PrivateKey
from typer.testing import CliRunner

from gradmarket.cli import app
from gradmarket.market.errors import Conflict, NotFound, Refused
from gradmarket.market.signing import Domain, address_of, digest_struct, sign_digest
from gradmarket.market.terms import Address, Amount, Hash, Units
from tests.lanes import FULL
from worker import durable, wallet
from worker.features import key_care
from worker.money import account_store
from worker.money.account_store import AccountStore, JobAccount


def test_a_plain_key_is_its_owners_alone(tmp_path: Path) -> None:
    made = wallet.create_wallet(tmp_path, None)
    assert stat.S_IMODE(made.path.stat().st_mode) == 0o600
    assert wallet.load_wallet(tmp_path, None) == made
    assert str(made.path) in made.describe_key_file()
    assert "NOT encrypted" in made.describe_key_file()


@FULL
def test_an_encrypted_key_needs_its_passphrase(tmp_path: Path) -> None:
    made = wallet.create_wallet(tmp_path, "correct horse")
    assert json.loads(made.path.read_text())["version"] == 3
    assert made.key.to_bytes().hex() not in made.path.read_text()
    assert wallet.load_wallet(tmp_path, "correct horse") == made
    for wrong in ("incorrect", None):
        with pytest.raises(Refused):
            wallet.load_wallet(tmp_path, wrong)


def test_a_key_is_never_replaced(tmp_path: Path) -> None:
    made = wallet.load_or_create(tmp_path, None)
    with pytest.raises(Conflict):
        wallet.create_wallet(tmp_path, None)
    assert wallet.load_or_create(tmp_path, None) == made


def test_a_damaged_or_missing_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        wallet.load_wallet(tmp_path, None)
    for damaged in (b"not a key", b"\xff\xfe"):
        durable.write_file_atomically(tmp_path / wallet.PLAIN, damaged)
        with pytest.raises(Refused, match=r"cannot be read: .* is no key"):
            wallet.load_wallet(tmp_path, None)


def test_the_commands_make_and_show_it(tmp_path: Path) -> None:
    run = CliRunner()
    made = run.invoke(app, ["wallet", "new", "--data", str(tmp_path), "--plain-key"])
    assert made.exit_code == 0
    assert "NO backup" in made.output
    shown = json.loads(run.invoke(app, ["wallet", "show", "--data", str(tmp_path), "--json"]).output)
    assert shown["address"] == wallet.load_wallet(tmp_path, None).address
    again = run.invoke(app, ["wallet", "new", "--data", str(tmp_path), "--plain-key"])
    assert again.exit_code == 2
    assert "is there already" in again.output
    assert "fix: name another folder with --data" in again.output


@pytest.mark.parametrize("command", [["wallet", "show"], ["worker", "run", "--market", "http://127.0.0.1:1"]])
def test_a_damaged_book_is_named_with_a_way_on(command: list[str], tmp_path: Path) -> None:
    wallet.create_wallet(tmp_path, None)
    durable.write_file_atomically(tmp_path / account_store.BOOK, b"junk")
    done = CliRunner().invoke(app, [*command, "--data", str(tmp_path)])
    assert done.exit_code == 2
    assert f"error: {tmp_path / account_store.BOOK}, which has the vouchers, is damaged\n" in done.stderr
    assert "fix: put the file back from a copy" in done.stderr


def test_an_address_without_its_scheme_is_refused_with_an_example(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["worker", "run", "--market", "127.0.0.1:8700", "--data", str(tmp_path)])
    assert done.stderr.startswith("error: --market: no address of a service: write it like http://127.0.0.1:8700\n")


@pytest.mark.parametrize("command", ["worker run", "wallet redeem", "serve"])
def test_a_word_in_place_of_a_node_is_refused_with_a_node_s_example(command: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, [*command.split(), "--rpc", "foo", "--data", str(tmp_path)])
    assert done.stderr.startswith("error: --rpc: no address of a chain's node: write it like http://127.0.0.1:8545\n")


@pytest.mark.parametrize("option", ["--job", "--for"])
def test_an_empty_job_is_refused(option: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["worker", "run", "--data", str(tmp_path / "new"), option, ""])
    assert done.stderr.startswith("error: --job: an id has letters, digits and dashes")
    assert not (tmp_path / "new").exists()


def test_a_consent_that_is_not_there_is_refused_before_a_market_is_asked(tmp_path: Path) -> None:
    command = ["worker", "run", "--data", str(tmp_path), "--market", "http://127.0.0.1:1", "--plain-key"]
    done = CliRunner().invoke(app, [*command, "--consent", str(tmp_path / "none.json")])
    assert done.exit_code == 2
    assert done.stderr.startswith(f"error: the consent {tmp_path / 'none.json'} cannot be read: No such file")
    assert done.stderr.endswith("fix: name a file that `gradmarket wallet consent give` printed\n")


def test_a_file_holds_the_old_bytes_or_the_new_ones(tmp_path: Path) -> None:
    durable.write_file_atomically(tmp_path / "deep" / "file", b"old")
    durable.write_file_atomically(tmp_path / "deep" / "file", b"new")
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["file"]
    assert (tmp_path / "deep" / "file").read_bytes() == b"new"


def test_a_full_disk_is_named_by_its_file_and_the_old_bytes_stay(tmp_path: Path) -> None:
    durable.write_file_atomically(tmp_path / "file", b"old")
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, usual[1]))
    try:
        with pytest.raises(OSError, match=re.escape(str(tmp_path / "file"))):
            durable.write_file_atomically(tmp_path / "file", b"new" * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("file", b"old")]


def test_a_line_that_the_disk_has_no_room_for_leaves_no_part_of_it(tmp_path: Path) -> None:
    durable.append_line(tmp_path / "file", b"old\n")
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, usual[1]))
    try:
        with pytest.raises(OSError, match=re.escape(str(tmp_path / "file"))):
            durable.append_line(tmp_path / "file", b"x" * 200 + b"\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    durable.append_line(tmp_path / "file", b"new\n")
    assert (tmp_path / "file").read_bytes() == b"old\nnew\n"


def test_a_file_is_written_where_folders_cannot_be_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS answers so to a lock of what is not open for writing."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EBADF, "Bad file descriptor")

    monkeypatch.setattr(durable.fcntl, "flock", refuse)
    durable.write_file_atomically(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"


def test_writers_of_one_file_take_turns(tmp_path: Path) -> None:
    texts = [bytes([number]) * 200_000 for number in range(20)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(partial(durable.write_file_atomically, tmp_path / "file", synced=False), texts))
    assert (tmp_path / "file").read_bytes() in texts
    assert len(list(tmp_path.iterdir())) == 1


def test_without_a_passphrase_a_key_is_made_only_with_plain_key(tmp_path: Path) -> None:
    made = CliRunner().invoke(app, ["wallet", "new", "--data", str(tmp_path)])
    assert made.exit_code == 2
    assert "--plain-key" in made.output
    assert wallet.find_key_file(tmp_path) is None


def test_a_plain_key_is_put_under_a_passphrase_from_a_file(tmp_path: Path) -> None:
    plain, secret = wallet.create_wallet(tmp_path, None), tmp_path / "passphrase"
    secret.write_text("correct horse\n")
    done = CliRunner().invoke(app, ["wallet", "encrypt", "--data", str(tmp_path), "--passphrase-file", str(secret)])
    assert done.exit_code == 0, done.output
    assert wallet.load_wallet(tmp_path, "correct horse").key == plain.key
    assert not plain.path.exists()
    shown = CliRunner().invoke(
        app, ["wallet", "show", "--data", str(tmp_path), "--passphrase-file", str(secret), "--json"]
    )
    assert json.loads(shown.output)["encrypted"] is True
    again = CliRunner().invoke(app, ["wallet", "encrypt", "--data", str(tmp_path), "--passphrase-file", str(secret)])
    assert again.exit_code == 2


def test_where_money_is_real_a_key_is_encrypted_or_asked_for_as_plain(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="passphrase"):
        wallet.load_or_create(tmp_path, None, plain=False)
    assert wallet.find_key_file(tmp_path) is None
    made = wallet.load_or_create(tmp_path, None, plain=True)
    with pytest.raises(Refused, match="wallet encrypt"):
        wallet.load_or_create(tmp_path, "correct horse", plain=False)
    assert wallet.load_or_create(tmp_path, None, plain=True) == made


@pytest.mark.parametrize("text", [None, ""])
def test_a_passphrase_file_without_one_is_refused_by_its_path(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "passphrase"
    if text is not None:
        path.write_text(text)
    done = CliRunner().invoke(app, ["wallet", "new", "--data", str(tmp_path), "--passphrase-file", str(path)])
    assert done.exit_code == 2
    assert str(path) in done.output


def store(folder: Path, own: Address) -> AccountStore:
    kept = account_store.open_account_store(folder, own)
    kept.save()
    return kept


def test_the_accounts_name_their_wallet_and_refuse_another_key(tmp_path: Path) -> None:
    mine, other = wallet.create_wallet(tmp_path, None), Address("0x" + "12" * 20)
    assert store(tmp_path, mine.address).wallet == mine.address
    assert store(tmp_path, mine.address).wallet == mine.address
    with pytest.raises(Conflict) as refused:
        account_store.open_account_store(tmp_path, other)
    for said in (mine.address, other):
        assert said in str(refused.value)
    assert "backup" in refused.value.remedy


def test_accounts_of_an_earlier_version_are_taken_by_the_wallet_of_their_vouchers_alone(tmp_path: Path) -> None:
    mine, other = wallet.create_wallet(tmp_path / "key", None).address, Address("0x" + "12" * 20)
    old = vouchered(mine)
    durable.write_file_atomically(
        tmp_path / "book.json", json.dumps({"accounts": [old.model_dump(mode="json")]}).encode()
    )
    with pytest.raises(Conflict, match="not made out"):
        account_store.open_account_store(tmp_path, other)
    assert store(tmp_path, mine).wallet == mine


def vouchered(worker: Address) -> JobAccount:
    key = PrivateKey(b"\x07" * 32)
    domain = Domain(31337, Address("0x" + "ab" * 20), Hash(b"\x01" * 32))
    names = {"chain_id": 31337, "contract": domain.contract, "instance": domain.instance, "chain_job": 1, "job": "j"}
    empty = JobAccount(**names, signer=address_of(key), unit=Amount(1), vouchered=Units(5))
    return empty.model_copy(update={"signature": sign_digest(key, digest_struct(domain, empty.voucher(worker)))})


@pytest.mark.parametrize("command", [["run", "--market", "http://127.0.0.1:1"], ["wallet", "new", "--plain-key"]])
def test_where_the_key_is_gone_no_other_one_is_made(tmp_path: Path, command: list[str]) -> None:
    mine = wallet.create_wallet(tmp_path, None)
    store(tmp_path, mine.address)
    mine.path.unlink()
    done = CliRunner().invoke(app, ["worker", *command, "--data", str(tmp_path)])
    assert done.exit_code == 2
    assert mine.address in done.stderr
    assert "backup" in done.stderr
    assert wallet.find_key_file(tmp_path) is None


@pytest.mark.parametrize("command", [["show"], ["verify"], ["redeem"]])
def test_another_key_in_the_folder_shows_proves_and_redeems_nothing(tmp_path: Path, command: list[str]) -> None:
    mine = wallet.create_wallet(tmp_path, None)
    store(tmp_path, mine.address)
    mine.path.unlink()
    other = wallet.create_wallet(tmp_path, None)
    done = CliRunner().invoke(app, ["wallet", *command, "--data", str(tmp_path)])
    assert done.exit_code == 2
    assert mine.address in done.stderr
    assert other.address in done.stderr


def test_a_worker_is_reminded_of_its_backup_until_one_exists(tmp_path: Path) -> None:
    folder, stick = tmp_path / "worker", tmp_path / "stick"
    made = wallet.create_wallet(folder, None)
    assert "gradmarket wallet backup" in made.describe_key_file()
    stick.mkdir()
    done = CliRunner().invoke(app, ["wallet", "backup", str(stick), "--data", str(folder)])
    assert done.exit_code == 0, done.output
    assert "gradmarket wallet backup" not in made.describe_key_file()
    copy = stick / wallet.PLAIN
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    made.path.unlink()
    copy.rename(made.path)
    assert wallet.load_wallet(folder, None) == made


@FULL
def test_a_key_that_was_encrypted_since_is_backed_up_anew(tmp_path: Path) -> None:
    wallet.create_wallet(tmp_path / "worker", None)
    key_care.back_up(tmp_path / "worker", tmp_path)
    key_care.encrypt_wallet(tmp_path / "worker", "correct horse")
    assert not wallet.is_backed_up(tmp_path / "worker")


def test_a_backup_is_elsewhere_and_replaces_no_other_key(tmp_path: Path) -> None:
    folder = tmp_path / "worker"
    wallet.create_wallet(folder, None)
    for lost in (folder, folder / "copy"):
        with pytest.raises(Refused, match="lost together"):
            key_care.back_up(folder, lost)
    with pytest.raises(Refused, match="no folder"):
        key_care.back_up(folder, tmp_path / "missing" / "copy")
    durable.write_file_atomically(tmp_path / "copy", b"another key")
    with pytest.raises(Conflict):
        key_care.back_up(folder, tmp_path / "copy")
    assert not wallet.is_backed_up(folder)


@pytest.mark.parametrize("words", ["wallet show", "wallet verify", "wallet redeem", "wallet backup copy", "worker top"])
def test_an_absent_folder_is_refused_and_not_made(words: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, [*words.split(), "--data", str(tmp_path / "none")])
    assert done.exit_code == 2
    assert f"in {tmp_path / 'none'}\nfix: name the worker's folder with --data" in done.stderr
    assert list(tmp_path.iterdir()) == []
