"""Stakes: money at risk in a job, the accusations that would slash it, and rulings of validators."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from functools import partial
from typing import Annotated

import typer

from gradmarket.market.errors import Refused
from gradmarket.market.money import TokenUnit
from gradmarket.market.terms import Address, JobId
from gradmarket.terminal import echo_text
from worker import wallet
from worker.feature import WalletLine, WorkerFeature
from worker.features.stakes import accusation_watch, case_commands
from worker.features.stakes.accusation_watch import AccusationWatch, count_open_cases
from worker.features.stakes.cases import list_open_accusations
from worker.features.stakes.stake import Bounds, Pledge, fetch_stake_offer, list_staked_risks
from worker.journal import Journal
from worker.markets.market_session import Shared
from worker.money import known_chains
from worker.money.chain_view import ledger_of
from worker.options import (
    DataOption,
    JsonOption,
    MarketOption,
    PassphraseOption,
    RpcOption,
    add_wallet_passphrase,
    settings_of,
)
from worker.settings import WorkerSettings


def stake(
    job: Annotated[str, typer.Argument(help="The job's id at the market.")],
    amount: Annotated[str, typer.Argument(help='Like "5 GRAD", or a whole number of the smallest unit.')],
    market: MarketOption = None,
    rpc: RpcOption = None,
    data: DataOption = None,
    passphrase_file: PassphraseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put money at risk in a job: it is slashed if an audit finds the worker's gradient wrong and it does not contest.

    Under `adaptive` replication it buys work of one's own, audited less as the record grows.
    """
    settings = settings_of(market=market, rpc=rpc, data=data, passphrase_file=passphrase_file)
    settings = add_wallet_passphrase(settings)
    key, listed = (
        wallet.load_wallet(settings.data, settings.secret),
        fetch_stake_offer(str(settings.market), JobId(job)),
    )
    money = TokenUnit.of(listed.facts)
    put, ledger = money.parse(amount), ledger_of(settings.node, listed.facts, str(settings.market))
    if put <= 0:
        raise Refused("a stake must be above 0", "name what you put at risk, such as 5 GRAD")
    known_chains.store_chain_facts(settings.data, listed.facts)
    accusation_watch.skip_earlier_blocks(settings.data, listed.facts, ledger, key.address)
    bounds = Bounds(settings.stake_contest_s, settings.stake_lock_s)
    Pledge(ledger, key.key).put(listed, put, bounds)
    sum_ = money.text(put)
    deciding = f"{listed.terms.threshold} of {', '.join(listed.terms.validators)}"
    text = f"{sum_} at risk in job {job}; a contested accusation is decided by {deciding}."
    Journal(as_json).report("staked", text, job=job, chain_job=listed.chain_job, amount=str(put))


def unstake(
    rpc: RpcOption = None,
    data: DataOption = None,
    passphrase_file: PassphraseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Leave every job, and take out the stake that no job can slash any more; again when the locks are over."""
    settings, journal = settings_of(rpc=rpc, data=data, passphrase_file=passphrase_file), Journal(as_json)
    settings = add_wallet_passphrase(settings)
    key = wallet.load_wallet(settings.data, settings.secret)
    for facts in known_chains.list_known_chains(settings.data):
        pledge = Pledge(ledger_of(settings.node, facts), key.key)
        out = pledge.take_out(lambda text: journal.report("left", text))
        journal.report("unstaked", f"{TokenUnit.of(facts).text(out)} taken out.", amount=str(out))
    for risk in list_staked_risks(settings, key.address, partial(echo_text, err=True)):
        journal.report("locked", risk.text(), **asdict(risk))


class StakingFeature(WorkerFeature):
    name = "stakes"
    needs = ("verify",)
    wallet_commands = {"case": case_commands.app, "stake": stake, "unstake": unstake}

    def run_beside(self, shared: Shared) -> AbstractContextManager[object]:
        return AccusationWatch.of_wallet(shared.settings, shared.wallet, shared.journal).running()

    def count_accusations(self, settings: WorkerSettings) -> int:
        return count_open_cases(settings)

    def list_wallet_lines(
        self, settings: WorkerSettings, me: Address, warn: Callable[[str], None]
    ) -> Mapping[str, Sequence[WalletLine]]:
        risks, cases = list_staked_risks(settings, me, warn), list_open_accusations(settings, me, warn)
        return {
            "stakes": [WalletLine(one.text(), asdict(one)) for one in risks],
            "accusations": [WalletLine(one.text(), asdict(one)) for one in cases],
        }
