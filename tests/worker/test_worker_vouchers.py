"""The accounts: earned, vouchered and owed pay survives kill -9, is counted once, and never falls."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradmarket.market.errors import NotFound
from gradmarket.market.messages import Voucher
from gradmarket.market.signing import Domain
from gradmarket.market.terms import Address, Amount, Hash, JobId, ReplicaId, Units
from tests.lanes import FULL
from worker.money.account_store import AccountStore, JobAccount

ME, SIGNER, OTHER = (Address(f"0x{digit * 40}") for digit in "123")
DOMAIN = Domain(31337, Address("0x" + "4" * 40), Hash(b"\x05" * 32))
SIGNATURE = bytes(65)


def account(job: int = 1, signer: Address = SIGNER, price: int = 10, instance: bytes = DOMAIN.instance) -> JobAccount:
    return JobAccount(
        chain_id=31337,
        contract=DOMAIN.contract,
        instance=Hash(instance),
        chain_job=job,
        job=JobId("a"),
        signer=signer,
        unit=Amount(1),
        price=Units(price),
    )


def opened(path: Path) -> AccountStore:
    account_store = AccountStore(path / "book.json")
    account_store.record_offer(account())
    account_store.save()
    return account_store


def earn(account_store: AccountStore, replica: str, units: int = 10) -> None:
    account_store.record_final_verdict(
        account_store.account(DOMAIN, 1), ReplicaId(replica), Units(units), accepted=True
    )
    account_store.save()


def take(account_store: AccountStore, cumulative: int, open_units: int = 0) -> None:
    voucher = Voucher(1, ME, Units(cumulative))
    account_store.take(account_store.account(DOMAIN, 1), voucher, SIGNATURE, Units(open_units))
    account_store.save()


def test_earnings_are_owed_until_a_voucher_covers_them(tmp_path: Path) -> None:
    account_store = opened(tmp_path)
    earn(account_store, "one")
    assert account_store.unpaid(SIGNER) == 1
    take(account_store, 10)
    assert account_store.unpaid(SIGNER) == 0
    assert account_store.account(DOMAIN, 1).redeemable == 10


def test_a_repeated_verdict_counts_once(tmp_path: Path) -> None:
    account_store = opened(tmp_path)
    earn(account_store, "one")
    earn(account_store, "one")
    assert (account_store.account(DOMAIN, 1).earned, account_store.account(DOMAIN, 1).accepted) == (10, 1)


def test_a_smaller_voucher_changes_nothing(tmp_path: Path) -> None:
    account_store = opened(tmp_path)
    earn(account_store, "one", 30)
    take(account_store, 30)
    take(account_store, 20)
    assert account_store.account(DOMAIN, 1).vouchered == 30


def test_a_voucher_for_what_an_earlier_book_earned_does_not_pay_for_the_next_gradient(tmp_path: Path) -> None:
    account_store = opened(tmp_path)
    take(account_store, 50, open_units=10)
    earn(account_store, "one")
    assert account_store.account(DOMAIN, 1).earned == 50
    earn(account_store, "two")
    assert account_store.unpaid(SIGNER) == 1


def test_an_account_is_on_disk_before_anything_is_computed_for_it(tmp_path: Path) -> None:
    AccountStore(tmp_path / "book.json").record_offer(account())
    assert AccountStore(tmp_path / "book.json").account(DOMAIN, 1).price == 10


def test_debts_are_the_requesters_whatever_the_job(tmp_path: Path) -> None:
    account_store = opened(tmp_path)
    account_store.record_offer(account(job=2))
    account_store.record_offer(account(job=3, signer=OTHER))
    account_store.record_final_verdict(account_store.account(DOMAIN, 2), ReplicaId("two"), Units(20), accepted=True)
    earn(account_store, "one")
    assert (account_store.unpaid(SIGNER), account_store.unpaid(OTHER)) == (3, 0)
    assert account_store.dealings(SIGNER).offers == 2


def test_a_grievance_counts_as_a_gradient_for_good(tmp_path: Path) -> None:
    opened(tmp_path).record_grievance(SIGNER, "broken_promise (one)")
    assert AccountStore(tmp_path / "book.json").unpaid(SIGNER) == 1


def test_another_instance_is_another_account(tmp_path: Path) -> None:
    account_store = opened(tmp_path)
    earn(account_store, "one")
    anew = Domain(31337, DOMAIN.contract, Hash(b"\x06" * 32))
    with pytest.raises(NotFound):
        account_store.account(anew, 1)
    account_store.record_offer(account(instance=anew.instance))
    assert account_store.account(anew, 1).earned == 0


def test_pay_redeemed_on_the_chain_is_not_redeemable_again(tmp_path: Path) -> None:
    account_store = opened(tmp_path)
    earn(account_store, "one")
    take(account_store, 10)
    account_store.paid_out(account_store.account(DOMAIN, 1), Units(10), closed=True)
    assert (account_store.account(DOMAIN, 1).redeemable, account_store.account(DOMAIN, 1).closed) == (0, True)
    account_store.record_offer(account())
    assert not account_store.account(DOMAIN, 1).closed


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 50)), max_size=12))
def test_every_step_is_on_disk_and_sums_never_fall(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[bool, int]]
) -> None:
    folder = tmp_path_factory.mktemp("book")
    account_store, earned, vouchered = opened(folder), 0, 0
    for number, (by_verdict, units) in enumerate(steps):
        if by_verdict:
            earn(account_store, str(number), units)
            earned += units
        else:
            told = min(units, earned)
            take(account_store, told)
            vouchered = max(vouchered, told)
        kept = AccountStore(folder / "book.json").account(DOMAIN, 1)
        assert kept == account_store.account(DOMAIN, 1)
        assert (kept.earned, kept.vouchered) == (earned, vouchered)


WRITER = """
import sys
from pathlib import Path
from tests.worker.test_worker_vouchers import opened, earn, take
book = opened(Path(sys.argv[1]))
for number in range(1, 10**6):
    earn(book, str(number))
    take(book, 10 * number)
    print(number, flush=True)
"""


@FULL
def test_confirmed_writes_survive_kill_9(tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", WRITER, str(tmp_path)]
    for _ in range(2):
        writer = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
        if writer.stdout is None:
            raise OSError("no pipe")
        said = 0
        while said < 20:
            said = int(writer.stdout.readline())
        os.kill(writer.pid, signal.SIGKILL)
        said = max([said, *map(int, writer.stdout.read().split())])
        writer.wait()
        writer.stdout.close()
        kept = AccountStore(tmp_path / "book.json").account(DOMAIN, 1)
        assert kept.vouchered in (10 * said, 10 * (said + 1))
        assert kept.earned >= kept.vouchered
        (tmp_path / "book.json").unlink()
