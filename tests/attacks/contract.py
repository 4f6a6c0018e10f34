"""A job of its own on the scene's contract, for attacks on the money alone."""

from dataclasses import dataclass

from eth_keys.datatypes import PrivateKey

from contracts import calls
from contracts.ledger import Ledger
from contracts.packing import PackedGroup
from gradmarket.market.signing import address_of
from gradmarket.market.terms import Address, Hash, Units
from gradmarket.network.chain_errors import ContractRefused
from tests.attacks.scene import Scene
from tests.onchain import OpenedJob, open_on

DEPOSIT, RESERVED, EARNED = 100, 60, 45


@dataclass(frozen=True)
class FundedJob:
    """A worker with a reservation in a job, and a voucher under all that it has earned."""

    job: OpenedJob
    key: PrivateKey

    @property
    def worker(self) -> Address:
        return address_of(self.key)

    @property
    def has(self) -> int:
        """Units that the worker has."""
        return self.job.ledger.balance(self.worker)

    def settle(self, batch: int, *groups: PackedGroup) -> None:
        self.job.send(calls.settle_packed(self.job.market, self.job.id, batch, list(groups)))


def chain_fixture(scene: Scene, ledger: Ledger | None = None) -> FundedJob:
    job = open_on(ledger or scene.ledger, scene.key, deposit=DEPOSIT)
    made = FundedJob(job, scene.rich())
    job.reserve((made.worker, RESERVED))
    return made


def group(worker: Address, count: int, price: int = 5, batch: int = 0) -> PackedGroup:
    digests = tuple(Hash(bytes([batch, number]) * 16) for number in range(count))
    return PackedGroup(worker, Units(price), digests)


def tried(job: OpenedJob, call: calls.Call, key: PrivateKey | None = None) -> str:
    """The contract's error, or `done`."""
    try:
        job.send(call, key)
    except ContractRefused as error:
        return error.name
    return "done"
