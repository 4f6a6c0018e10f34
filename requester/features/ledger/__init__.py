"""A job's ledger in double entry: what its rows promise and the chain moved, compared with the contract's figures."""

from starlette.datastructures import State

from requester.context import Context
from requester.feature import Feature
from requester.features.ledger import ledger_routes
from requester.features.ledger.ledger_cache import Statements


class LedgerFeature(Feature):
    name = "ledger"
    routers = (ledger_routes.router,)

    def open_caches(self, state: State, context: Context) -> None:
        state.statements = Statements(context)
