"""Consents of payout keys: several workers under one operator, which share one record."""

from gradmarket.market.terms import Address
from gradmarket.market.wire.sign_in import ChainFacts, ConsentRequest
from worker.feature import WorkerFeature
from worker.features.consents import consent_commands
from worker.features.consents.payout_consents import find_consent_for_market
from worker.settings import WorkerSettings


class PayoutConsentsFeature(WorkerFeature):
    name = "consents"
    serves = frozenset({"consents"})
    wallet_commands = {"consent": consent_commands.app}

    def find_consent(
        self, settings: WorkerSettings, facts: ChainFacts, worker: Address, payout: Address
    ) -> ConsentRequest | None:
        return find_consent_for_market(settings.consents, facts, worker, payout)
