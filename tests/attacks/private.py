"""Rows that stay with their holders: holders that lie, strangers that want in, a requester that breaks its word."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from gradmarket.data.pack import Cut, pack_dataset, write_dataset
from gradmarket.market.errors import Refused
from gradmarket.market.job import JobSpec, Publication
from gradmarket.market.manifest import parse_manifest
from gradmarket.market.signing import address_of, digest_struct, sign_digest
from gradmarket.market.terms import Address, Amount, Units, blob_digest
from gradmarket.market.wire.poll import hash_of
from gradmarket.runner import Runner, RunnerSettings
from tests.attacks.registry import attack
from tests.attacks.scene import UNIT, Posted, Scene
from tests.attacks.scripted_worker import ScriptedWorker
from tests.kit.behaviour import HONEST, Arrays, Behaviour
from tests.patience import wait_until
from worker.features.private.own_rows import OwnRows
from worker.money.chain_view import ChainView
from worker.protocol.policy import Guard, OnChain, Proposal, RequesterStanding, WorkLimits, why_not

FLOOR, CEILING = 2, 42
INPUTS = {"x": {"dtype": "float32", "shape": [3]}, "y": {"dtype": "float32", "shape": [1]}}
PRIVACY = {"noise_multiplier": 40.0, "epsilon": 8.0, "delta": 1e-5}


def job_of(scene: Scene, *behaviours: Behaviour, **changes: Any) -> tuple[Posted, list[ScriptedWorker]]:
    """A private job paid by worth, and its holders, which have announced themselves."""
    keys = [scene.key() for _ in behaviours]
    rows = {"inputs": INPUTS, "holders": [address_of(key) for key in keys], "least_rows": 8}
    worth = {"name": "worth", "floor": str(FLOOR * UNIT), "ceiling": str(CEILING * UNIT)}
    measured = {"evaluation": {"partition": "train", "metric": "loss"}, "price": worth, "budget": str(4000 * UNIT)}
    data = rows | {"manifest": blob_digest(scene.measured[1])}
    job = scene.post(**{"data": data, "tasks_per_round": len(keys), "replication": _ALONE} | measured | changes)
    holders = [job.scripted(behaviour, key) for behaviour, key in zip(behaviours, keys, strict=True)]
    for one in holders:
        assert announce_rows(one) == 200
    return job, holders


_ALONE = {"name": "fixed", "replicas": 1, "max_replicas": 1}


def announce_rows(worker: ScriptedWorker, rows: int = 8) -> int:
    return worker.http.put(f"/v1/work/holdings/{worker.job.id}", json={"rows": rows}).status_code


def spoils(change: Callable[[np.ndarray], np.ndarray]) -> Behaviour:
    def spoil(answer: Arrays, _address: Address) -> Arrays:
        return {name: values if name == "loss" else change(values).astype("<f4") for name, values in answer.items()}

    return Behaviour(spoil)


def paid_beside_two(scene: Scene, lie: Behaviour, rounds: int = 1) -> str:
    """Returns a liar's pay beside two honest holders."""
    job, (liar, *honest) = job_of(scene, lie, HONEST, HONEST, rounds=rounds)
    job.play(liar, *honest)
    wait_until(lambda: job.fetch_view("/ledger").get("books", {}).get("balanced"), "the books balance")
    floor = "the floor" if job.paid(liar) == rounds * FLOOR else f"{job.paid(liar)} units"
    more = all(job.paid(one) > rounds * FLOOR for one in honest)
    return f"liar {floor}; honest {'more' if more else 'no more'}; {job.fetch_view()['state']}; {job.balanced()}"


LIAR = "liar the floor; honest more; finished; books balanced"


@attack("a holder that answers without its rows", LIAR)
def a_holder_sends_noise(scene: Scene) -> str:
    """Far longer than honest answers and within the bound."""
    drawn = np.random.default_rng(1)
    return paid_beside_two(scene, spoils(lambda values: 50 * drawn.standard_normal(values.shape)))


@attack("a holder that answers without its rows", LIAR)
def a_holder_turns_its_answer_round(scene: Scene) -> str:
    return paid_beside_two(scene, spoils(np.negative))


@attack("a holder that answers without its rows", LIAR)
def a_holder_sends_the_parameters_as_they_came(scene: Scene) -> str:
    """A pseudo-gradient of zeros: a free ride on the other holders."""
    return paid_beside_two(scene, spoils(np.zeros_like))


@attack("a holder that answers without its rows", "by digest 404, its list 404; a job of its own 403")
def a_holder_asks_for_the_rows_by_which_it_is_paid(scene: Scene) -> str:
    """To train on them; the digest is in the manifest, which it reads."""
    job, (holder,) = job_of(scene, HONEST)
    digest = (
        parse_manifest(holder.http.get(f"/v1/blobs/{job.fetch_view()['publication']['manifest']}").content)
        .partitions[0]
        .digest
    )
    whole, pieces = (holder.http.get(f"/v1/blobs/{digest}{more}").status_code for more in ("", "/pieces"))
    own = holder.http.post("/v1/jobs", json=scene.spec(evaluation={"partition": "train"})).status_code
    return f"by digest {whole}, its list {pieces}; a job of its own {own}"


@attack("a holder that answers without its rows", "rejected once, paid 0, drawn no more; finished; books balanced")
def a_holder_shouts_the_others_down(scene: Scene) -> str:
    """An answer over the norm bound is refused, and its holder gets no further task."""
    job, (liar, *honest) = job_of(
        scene, spoils(lambda values: 1e6 * values), HONEST, HONEST, tasks_per_round=2, rounds=2
    )
    job.play(liar, *honest)
    states = [str(held.state) for held in liar.held.values()]
    ended = "rejected once" if states in ([], ["rejected"]) else str(states)
    return f"{ended}, paid {job.paid(liar)}, drawn no more; {job.fetch_view()['state']}; {job.balanced()}"


@attack("who takes part in a private job", "403; no lease; honest paid; finished")
def a_wallet_that_is_not_on_the_list(scene: Scene) -> str:
    job, honest = job_of(scene, HONEST)
    stranger = job.scripted()
    answer = announce_rows(stranger)
    job.play(stranger, *honest)
    paid = "honest paid" if job.paid(honest[0]) else "honest unpaid"
    return f"{answer}; {stranger.states}; {paid}; {job.fetch_view()['state']}"


@attack("who takes part in a private job", "as another 422; its own session 403; no lease")
def a_holding_claimed_under_anothers_address(scene: Scene) -> str:
    """The list names addresses that everybody reads; a session is its wallet's."""
    job, (holder,) = job_of(scene, HONEST)
    thief = job.scripted()
    thief.signed_in["message"] = thief.signed_in["message"].replace(thief.address, holder.address)
    forged = thief.http.post("/v1/session", json=thief.signed_in)
    return f"as another {forged.status_code}; its own session {announce_rows(thief)}; {thief.states}"


@attack("who takes part in a private job", "8 rows 8; 800 rows 8; none 8")
def a_holder_that_tells_of_more_rows_later(scene: Scene) -> str:
    """The weight of an answer stands once it is stated."""
    _, (holder,) = job_of(scene, HONEST)

    def stands(rows: int | None) -> int:
        answer = holder.http.put(f"/v1/work/holdings/{holder.job.id}", json={"rows": rows})
        return int(answer.raise_for_status().json()["rows"])

    return f"8 rows {stands(8)}; 800 rows {stands(800)}; none {stands(None)}"


@attack("who takes part in a private job", "one answer a round: 1 of round 0, 1 of round 1; finished")
def one_that_answers_for_two_holders(scene: Scene) -> str:
    """With room for many tasks at once, beside another that is slow to ask."""
    job, (greedy, slow) = job_of(scene, HONEST, HONEST, rounds=2)
    greedy.capacity = 8
    for _ in range(6):
        greedy.turn(wait_s=0.5)
    job.play(greedy, slow)
    rounds = [held.lease.offer.round for held in greedy.held.values()]
    counted = ", ".join(f"{rounds.count(number)} of round {number}" for number in (0, 1))
    return f"one answer a round: {counted}; {job.fetch_view()['state']}"


@attack("an answer out of its round", "the old commitment refused; the new one taken; finished; books balanced")
def an_answer_of_an_earlier_round_again(scene: Scene) -> str:
    """Its commitment is signed over the offer of its own round, and so is its fence."""
    job, (holder,) = job_of(scene, HONEST, rounds=2)
    first = holder.computed(holder.lease())
    old = holder.commitment(first)
    job.play(holder, done=lambda: job.fetch_view()["round"] == 0)
    second = holder.computed(holder.lease())
    holder.poll(commitments=[old.model_copy(update={"replica": second.lease.replica, "fence": second.lease.fence})])
    refused = "refused" if holder.refusals else "taken"
    job.play(holder)
    taken = "taken" if all(str(held.state) == "payable" for held in holder.held.values()) else "refused"
    return f"the old commitment {refused}; the new one {taken}; {job.fetch_view()['state']}; {job.balanced()}"


@attack("an answer out of its round", "late answer refused, paid 0; the other holder paid; finished; books balanced")
def an_answer_that_comes_after_its_lease(scene: Scene) -> str:
    """The round goes on with another holder, and a late answer belongs to no task."""
    late = {"lease_s": 5, "wave_s": 5, "upload_s": 5}
    job, (slow, other) = job_of(scene, HONEST, HONEST, tasks_per_round=1, deadlines=late)
    held = slow.computed(slow.lease())
    wait_until(lambda: str(job.fetch_view("/stats")["replicas"]).count("expired"), "the lease lapses")
    job.play(other)
    refused = "refused" if slow.answer(held).status_code >= 400 else "taken"
    paid = "paid" if job.paid(other) else "unpaid"
    answer = f"late answer {refused}, paid {job.paid(slow)}; the other holder {paid}"
    return f"{answer}; {job.fetch_view()['state']}; {job.balanced()}"


@attack(
    "rows that do not fit their job",
    "refused: input x: the job reads float32[3] a row, the dataset has float32[2] a row",
)
def a_dataset_unlike_the_schema(scene: Scene) -> str:
    """The holder's own worker checks its rows against the job before it takes part."""
    job, _ = job_of(scene, HONEST)
    rows = {"x": np.zeros((9, 2), np.float32), "y": np.zeros((9, 1), np.float32)}
    with TemporaryDirectory() as folder, Runner(RunnerSettings()) as runner:
        write_dataset(pack_dataset(rows, Cut(rows=100)), Path(folder))
        try:
            OwnRows.opened(Path(folder)).check(job.spec, runner)
        except Refused as error:
            return f"refused: {error.detail}"
    return "taken"


def offered(scene: Scene, **changed: Any) -> str:
    """Returns a holder's reason to decline a private job whose requester changed the publication."""
    job, (holder,) = job_of(scene, HONEST, price=str(FLOOR * UNIT), privacy=PRIVACY)
    lease, said, key = holder.lease(), Publication.model_validate(job.fetch_view()["publication"]), scene.key()
    opened, now = ChainView(scene.ledger, holder.address).opened(job.chain_job), time.time()
    chain = OnChain(frozenset({address_of(key)}), opened.spec_digest, Amount(UNIT), Units(10**6), now + 10**6, now)
    limits = WorkLimits(
        frozenset({job.id}), Amount(0), leases=4, unpaid=1, margin_s=1.0, max_flops=1e9, max_memory=10**9
    )

    def find_refusal(publication: Publication) -> str:
        offer = replace(lease.lease.offer.struct(), spec=hash_of(publication.digest))
        proposal = Proposal(job.domain, job.id, offer, sign_digest(key, digest_struct(job.domain, offer)), publication)
        return str(why_not(proposal, chain, RequesterStanding(0, Units(0), 0), limits) or "taken")

    other = JobSpec.model_validate(said.spec.model_dump(mode="json") | changed)
    return f"as published {find_refusal(said)}; then {find_refusal(said.model_copy(update={'spec': other}))}"


ELSE = f"as published taken; then {Guard.OTHER_SPEC_ON_CHAIN}"


@attack("a requester that breaks its word to holders", ELSE)
def less_noise_than_was_published(scene: Scene) -> str:
    return offered(scene, privacy=PRIVACY | {"noise_multiplier": 4.0, "epsilon": 100.0})


@attack("a requester that breaks its word to holders", ELSE)
def more_rounds_than_were_published(scene: Scene) -> str:
    return offered(scene, rounds=1000)
