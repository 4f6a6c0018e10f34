"""Redeeming without a market: the book's vouchers, the key, and a node of the chain are enough."""

from gradmarket.contracts.errors import ChainError
from gradmarket.market.errors import MarketError
from gradmarket.market.terms import Hash
from gradmarket.worker import chains, durable, wallet
from gradmarket.worker.chain import Sight, ledger_of
from gradmarket.worker.money import Purse
from gradmarket.worker.report import Journal, Money
from gradmarket.worker.settings import Settings
from gradmarket.worker.vouchers import Book
from gradmarket.worker.wallet import Wallet


def redeem_all(settings: Settings, journal: Journal) -> bool:
    """Redeems every voucher in the folder's book; False where one could not be. No worker may be running in it."""
    with durable.lock(settings.data):
        key = wallet.load(settings.data, settings.secret)
        book = Book(settings.data / "book.json")
        instances = {account.instance for account in book.accounts if account.redeemable}
        if not instances:
            journal.say("redeemed", "There is nothing to redeem.")
        done = [_redeem_on(settings, instance, key, book, journal) for instance in sorted(instances)]
        return all(done)


def _redeem_on(settings: Settings, instance: Hash, key: Wallet, book: Book, journal: Journal) -> bool:
    try:
        facts = chains.find(settings.data, instance)
        sight = Sight(ledger_of(settings.node, facts), key.address)
    except (MarketError, ChainError) as error:
        journal.say("redeem_failed", f"Chain {instance.hex()[:10]}: {error}")
        return False
    purse = Purse(sight, key.key, book, journal, Money(facts.symbol, facts.decimals), settings.payout)
    done = [purse.redeem(account) for account in purse.accounts() if account.redeemable]
    return all(done)
