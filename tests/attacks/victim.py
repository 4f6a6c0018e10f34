"""A real worker's loop against an attacker's market: the requester's gain by cheating."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gradmarket.market.job import JobSpec, Publication
from gradmarket.market.terms import blob_digest
from tests.attacks.scene import Scene
from tests.kit.worker_context import fund_job, open_worker_context
from tests.worker.fake_market import PRICE, FakeMarket
from worker.markets.loop import Loop
from worker.markets.worker_context import WorkerContext
from worker.protocol.in_flight import InFlightFolder

TURNS = 7


def market(scene: Scene, document: bytes | None = None, parameters: bytes | None = None, **changes: Any) -> FakeMarket:
    """A funded job on the scene's chain that asks for this document or the scene's, and whoever runs its market."""
    spec = JobSpec.model_validate(scene.spec(rounds=100, price=str(PRICE), **changes))
    document, parameters = document or scene.document, parameters or scene.parameters
    blobs = {blob_digest(blob): blob for blob in (document, parameters, scene.data, scene.manifest)}
    publication = Publication(
        job="0123456789abcdef",
        spec=spec,
        document=blob_digest(document),
        evaluation=None,
        parameters=blob_digest(parameters),
        manifest=blob_digest(scene.manifest),
    )
    return FakeMarket(fund_job(scene.ledger, scene.key(), scene.key(), publication), publication, blobs)


def worked(scene: Scene, stranger: FakeMarket, turns: int = TURNS) -> tuple[WorkerContext, str]:
    """The worker's context after `turns` turns for this market, and its journal."""
    rpc = str(scene.ledger.web3.provider.endpoint_uri)  # type: ignore[attr-defined]
    with TemporaryDirectory() as name, scene.lend_runner() as runner:
        folder = Path(name)
        with open_worker_context(stranger, rpc, runner, scene.rich(), folder) as context:
            loop = Loop(context, InFlightFolder(folder / "held"))
            for _ in range(turns):
                loop.turn()
            return context, (folder / "journal").read_text()


def grievance(context: WorkerContext) -> str:
    """Its first word, or none."""
    found = context.account_store.dealings(context.signer).grievances
    return found[0].split()[0] if found else "none"
