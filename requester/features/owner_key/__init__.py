"""Jobs whose money belongs to a key kept elsewhere: the service hands out transactions, and its owner signs them."""

from contracts.calls import OpenJob
from gradmarket.market.terms import Units
from requester.chain.chain_context import ChainContext, OwnerCall, OwnerElsewhere, ToSign
from requester.feature import Feature
from requester.features.owner_key import owner_calls
from requester.store.tables import Job


class KeyElsewhere(OwnerElsewhere):
    def find_opening(self, chain: ChainContext, job: Job) -> OwnerCall:
        return owner_calls.find_owner_opening(chain, job)

    def list_calls(self, chain: ChainContext, job: Job, terms: OpenJob, added: Units) -> list[ToSign]:
        return owner_calls.to_sign(chain, job, terms, added)


class OwnerKeyFeature(Feature):
    name = "owner_key"
    elsewhere = KeyElsewhere()
