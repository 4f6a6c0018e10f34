"""The owner of a folder's accounts: they name their wallet, and no other key works, shows or verifies by them."""

from pathlib import Path
from typing import Final

from gradmarket.market.errors import Conflict, NotFound, SignatureRefused
from gradmarket.market.signing import digest_struct, recover_signer
from gradmarket.market.terms import Address
from worker import wallet
from worker.money.account_store import AccountStore, JobAccount

BOOK: Final = "book.json"


def open_account_store(folder: Path, own: Address) -> AccountStore:
    """Returns the folder's accounts, which name the wallet `own` from their next writing on.

    Raises Conflict if they are another wallet's.
    """
    store = AccountStore(folder / BOOK)
    if store.wallet is None and not all(_made_out_to(account, own) for account in store.accounts):
        raise Conflict(
            f"the vouchers in {folder / BOOK} are not made out to {own}, whose key is there",
            _describe_key_remedy(folder),
        )
    if store.wallet not in (None, own):
        raise Conflict(
            f"{folder / BOOK} has the earnings of {store.wallet}, and the key there is that of {own}",
            _describe_key_remedy(folder),
        )
    store.belongs_to(own)
    return store


def check_a_key_may_be_made(folder: Path) -> None:
    """Raises NotFound where a key is missing and the folder has the accounts of one: that one must come back."""
    store = AccountStore(folder / BOOK)
    if wallet.find_key_file(folder) is None and (store.wallet is not None or store.accounts):
        whose = f"of {store.wallet}" if store.wallet else "of the wallet that earned what is listed there"
        raise NotFound(f"the key {whose} is gone from {folder}", _describe_key_remedy(folder))


def _describe_key_remedy(folder: Path) -> str:
    return f"put the right key back from its backup as {folder / wallet.PLAIN}, or take another folder with --data"


def _made_out_to(account: JobAccount, own: Address) -> bool:
    """Returns whether the account's voucher, if it has one, is signed for this worker."""
    if account.signature is None:
        return True
    try:
        return recover_signer(digest_struct(account.domain, account.voucher(own)), account.signature) == account.signer
    except SignatureRefused:
        return False
