"""Consents of payout keys: several workers under one operator, which share one record.

`gradmarket wallet consent …`: a payout key consents to be a worker's operator, or withdraws its consent.

If the key is in this wallet, the command signs with it. If it is elsewhere (`--payout`), the command prints the message
that the other wallet must sign, and takes its signature in a second call (`--nonce`, `--signature`).
"""

import json
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Annotated

import typer

from gradmarket.client.transport import keep_trying_for
from gradmarket.market.errors import Refused
from gradmarket.market.messages import SignedConsent, Withdrawal
from gradmarket.market.signing import check_struct_signature, parse_named_address
from gradmarket.market.terms import Address
from gradmarket.market.wire.sign_in import ChainFacts, ConsentRequest
from gradmarket.terminal import echo_text
from worker import wallet
from worker.feature import WorkerFeature
from worker.features.consents import payout_consents
from worker.features.consents.payout_consents import Message, find_consent_for_market
from worker.markets.market_session import Shared
from worker.options import DataOption, MarketOption, PassphraseOption, add_wallet_passphrase, settings_of
from worker.protocol.client import COMMAND_WAIT_S, Credentials, MarketClient
from worker.settings import WorkerSettings

app = typer.Typer(no_args_is_help=True, help="Whose operator a payout key is: several workers, one record.")

WorkerArgument = Annotated[str, typer.Argument(help="The worker's address.")]
PayoutOption = Annotated[str | None, typer.Option(help="The payout address, where its key is not in this wallet.")]
NonceOption = Annotated[int | None, typer.Option(help="As printed with what was to be signed.")]
SignatureOption = Annotated[str | None, typer.Option(help="Of the payout's key: 0x and 130 hex digits.")]


@app.command()
def give(
    worker: WorkerArgument,
    market: MarketOption = None,
    payout: PayoutOption = None,
    nonce: NonceOption = None,
    signature: SignatureOption = None,
    data: DataOption = None,
    passphrase_file: PassphraseOption = None,
) -> None:
    """Print the consent of this wallet's key: the worker's file for `gradmarket worker run --payout … --consent FILE`.

    A payout address that is a contract has no key and cannot consent; its workers stay operators of their own.
    """
    with _open_market_client(market, data, passphrase_file) as (settings, service):
        consent = SignedConsent(
            parse_named_address(worker), _choose_payout_address(settings, payout), nonce or int(time.time())
        )
        facts = service.facts()
        signed = _find_message_signature(settings, facts, consent, payout, signature)
        if signed is not None:
            echo_text(payout_consents.build_consent_file(facts, consent, signed).model_dump_json())


@app.command()
def withdraw(
    worker: WorkerArgument,
    market: MarketOption = None,
    payout: PayoutOption = None,
    nonce: NonceOption = None,
    signature: SignatureOption = None,
    data: DataOption = None,
    passphrase_file: PassphraseOption = None,
) -> None:
    """Take every consent for the worker back that this wallet's key has given until now, at one market.

    This wallet signs in to bring it, whoever's key has signed.
    """
    with _open_market_client(market, data, passphrase_file) as (settings, service):
        own = _load_own_wallet(settings)
        message = Withdrawal(
            parse_named_address(worker), _choose_payout_address(settings, payout), nonce or int(time.time())
        )
        facts = service.facts()
        signed = _find_message_signature(settings, facts, message, payout, signature)
        if signed is not None:
            check_struct_signature(facts.domain, message, signed, message.payout)
            service.identify(Credentials(own, own.address, facts.chain_id))
            after = payout_consents.send_withdrawal(service, message, signed)
            echo_text(f"The operator of {after.worker} is {after.operator} now.")


@contextmanager
def _open_market_client(
    market: str | None, data: DataOption, passphrase_file: PassphraseOption
) -> Iterator[tuple[WorkerSettings, MarketClient]]:
    settings = add_wallet_passphrase(settings_of(market=market, data=data, passphrase_file=passphrase_file))
    service = MarketClient(str(settings.market).rstrip("/"), keep_trying_for(COMMAND_WAIT_S))
    try:
        yield settings, service
    finally:
        service.close()


def _load_own_wallet(settings: WorkerSettings) -> wallet.Wallet:
    return wallet.load_wallet(settings.data, settings.secret)


def _choose_payout_address(settings: WorkerSettings, payout: str | None) -> Address:
    return parse_named_address(payout) if payout else _load_own_wallet(settings).address


def _find_message_signature(
    settings: WorkerSettings, facts: ChainFacts, message: Message, payout: str | None, signature: str | None
) -> bytes | None:
    """Returns this wallet's signature or the given one; or prints the message for another wallet and returns None."""
    if payout is None:
        return payout_consents.sign_consent_message(facts, message, _load_own_wallet(settings).key)
    if signature is None:
        echo_text(json.dumps(payout_consents.build_typed_data(facts, message)))
        remedy = f"sign this with the key of {message.payout} (eth_signTypedData_v4), then run the same command with"
        echo_text(f"{remedy} --nonce {message.nonce} --signature 0x…", err=True)
        return None
    try:
        return bytes.fromhex(signature.removeprefix("0x"))
    except ValueError as error:
        raise Refused("the signature is not hexadecimal") from error


class PayoutConsentsFeature(WorkerFeature):
    name = "consents"
    serves = frozenset({"consents"})
    wallet_commands = {"consent": app}

    def run_beside(self, shared: Shared) -> AbstractContextManager[object]:
        for path in shared.settings.consents:
            payout_consents.load_consent(path)  # refused before a market is asked
        return nullcontext()

    def find_consent(
        self, settings: WorkerSettings, facts: ChainFacts, worker: Address, payout: Address
    ) -> ConsentRequest | None:
        return find_consent_for_market(settings.consents, facts, worker, payout)
