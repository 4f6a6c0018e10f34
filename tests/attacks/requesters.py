"""Requesters that cheat their workers: each gets at most one gradient out of a worker, and the worker knows it."""

from gradmarket.market.terms import Address, Hash
from gradmarket.market.wire.poll import SignedVoucher, WaveOpened
from tests.attacks.registry import attack
from tests.attacks.scene import Scene
from tests.attacks.victim import grievance, market, worked
from tests.kit.behaviour import TRIPLED
from tests.worker.fake_market import FakeMarket, Row


def taken(stranger: FakeMarket) -> str:
    return f"gradients taken {stranger.committed}, uploads {sum(row.uploads for row in stranger.rows.values())}"


class Grinder(FakeMarket):
    """Opens another secret than the one it promised, to have the seed it likes."""

    def wave(self, row: Row) -> WaveOpened:
        return self.signed_wave(row, Hash(bytes(32)), ((row.worker, row.sealed or Hash(bytes(32))),))


class Taker(FakeMarket):
    """Takes the payload and gives no voucher for it."""

    def voucher(self, worker: Address) -> SignedVoucher | None:
        return None


class UnderReporter(FakeMarket):
    """Vouches for less than was accepted."""

    def voucher(self, worker: Address) -> SignedVoucher | None:
        return self.signed_voucher(worker, max(0, self.earned - 1), self.job.signer)


def hostile(kind: type[FakeMarket], scene: Scene) -> FakeMarket:
    honest = market(scene)
    return kind(honest.job, honest.publication, honest.blobs)


@attack("requester grinding its secret", "gradients taken 1, uploads 0; reveals 0; grievance wrong_secret")
def another_secret_than_promised(scene: Scene) -> str:
    """The worker checks the opened link against the offer's anchor before it reveals anything."""
    stranger = hostile(Grinder, scene)
    context, _ = worked(scene, stranger)
    reveals = sum(len(said.reveals) for said in stranger.asked)
    return f"{taken(stranger)}; reveals {reveals}; grievance {grievance(context)}"


@attack("requester takes a gradient unpaid", "gradients taken 1, uploads 1; unpaid 1; the worker stopped")
def no_voucher_for_a_gradient(scene: Scene) -> str:
    stranger = hostile(Taker, scene)
    context, journal = worked(scene, stranger)
    stopped = "the worker stopped" if "Stopped: 1 gradients are not paid" in journal else "the worker goes on"
    return f"{taken(stranger)}; unpaid {context.account_store.unpaid(context.signer)}; {stopped}"


@attack("requester under-reports acceptance", "gradients taken 1, uploads 1; unpaid 1; the worker stopped")
def a_voucher_for_less_than_was_accepted(scene: Scene) -> str:
    stranger = hostile(UnderReporter, scene)
    context, journal = worked(scene, stranger)
    stopped = "the worker stopped" if "Stopped: 1 gradients are not paid" in journal else "the worker goes on"
    return f"{taken(stranger)}; unpaid {context.account_store.unpaid(context.signer)}; {stopped}"


@attack(
    "requester's Sybils out-vote honest workers",
    "Sybils payable 10; honest rejected 0; finished; books balanced; its verdict is signed",
)
def two_names_of_the_requester_against_one_worker(scene: Scene) -> str:
    """A stated limit: voting alone cannot detect it. It costs the worker one gradient, and leaves signed evidence."""
    job = scene.post()
    sybils, honest = job.team(TRIPLED, TRIPLED), job.scripted()
    job.play(*sybils, honest)
    told = honest.newest().told
    signed = "signed" if told is not None and told.signature is not None else "not signed"
    return f"{job.seen(Sybils=sybils, honest=honest)}; its verdict is {signed}"
