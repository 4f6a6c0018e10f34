"""Redeems without a market: the accounts' vouchers, the key, and a node of the chain are enough."""

import typer

from gradmarket.market.errors import MarketError
from gradmarket.market.money import TokenUnit
from gradmarket.network.chain_errors import ChainError
from worker import durable, wallet
from worker.feature import WorkerFeature
from worker.journal import Journal
from worker.money import known_chains
from worker.money.account_store import JobAccount, open_account_store
from worker.money.chain_view import ChainView, ledger_of
from worker.money.redeemer import DROPPED_WITHIN_S, Redeemer
from worker.options import DataOption, JsonOption, PassphraseOption, RpcOption, add_wallet_passphrase, settings_of
from worker.settings import WorkerSettings


def redeem(
    rpc: RpcOption = None,
    data: DataOption = None,
    passphrase_file: PassphraseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Redeem every voucher in the accounts, with no market needed."""
    done = redeem_all(
        add_wallet_passphrase(settings_of(rpc=rpc, data=data, passphrase_file=passphrase_file)), Journal(as_json)
    )
    raise typer.Exit(0 if done else 1)


def redeem_all(settings: WorkerSettings, journal: Journal) -> bool:
    """Redeems every voucher in the folder's accounts, and collects the credit of batches without one.

    Returns False if one failed. No worker may run in the folder.
    """
    key = wallet.load_wallet(settings.data, settings.secret)  # first: the lock makes the folder
    with durable.lock_worker_folder(settings.data):
        account_store = open_account_store(settings.data, key.address)
        owed = {account.instance for account in account_store.accounts if _is_owed(account)}
        late = {account.instance for account in account_store.accounts if account.is_closed_within(DROPPED_WITHIN_S)}
        tried, done = 0, True
        for instance in sorted(owed | late):
            try:
                facts = known_chains.load_chain_facts(settings.data, instance)
                chain_view = ChainView(ledger_of(settings.node, facts), key.address)
                redeemer = Redeemer(chain_view, key.key, account_store, journal, TokenUnit.of(facts), settings.payout)
                redeemer.reopen_dropped_accounts(DROPPED_WITHIN_S)
            except (MarketError, ChainError) as error:
                journal.report("redeem_failed", f"Chain {instance.hex()[:10]}: {error}")
                done = done and instance not in owed
                continue
            redeemed = [redeemer.redeem(account) for account in redeemer.accounts() if _is_owed(account)]
            tried, done = tried + len(redeemed), done and all(redeemed)
        if done and not tried:
            journal.report("redeemed", "There is nothing to redeem.")
        return done


def _is_owed(account: JobAccount) -> bool:
    """Returns whether a voucher is not redeemed, or the chain may have credited some of the promised pay."""
    return not account.closed and (bool(account.redeemable) or account.earned > account.redeemed)


class RedeemFeature(WorkerFeature):
    name = "redeem"
    wallet_commands = {"redeem": redeem}
