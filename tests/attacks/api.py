"""Requests said again: a sign-in, a post, a token of nobody."""

from commitments import refusal
from puppet import HONEST
from registry import attack
from scene import Scene


@attack("replayed API request", "sign-in again 422; worker payable 10; finished; books balanced", share=True)
def another_s_sign_in_is_sent_again(scene: Scene) -> str:
    """Who reads a signed message on the way cannot use it: its nonce is good once."""
    job = scene.post()
    workers = job.team(HONEST, HONEST, HONEST)
    again = scene.requester.post("/v1/session", json=workers[0].signed_in, headers={"Authorization": ""})
    job.play(*workers)
    return f"sign-in again {again.status_code}; {job.seen(worker=workers)}"


@attack("replayed API request", "post again 201, the same job; another body 409; one deposit")
def a_post_is_sent_again(scene: Scene) -> str:
    headers = {"Idempotency-Key": scene.key().to_hex()[:40]}
    first = scene.requester.post("/v1/jobs", json=scene.spec(name="once"), headers=headers)
    again = scene.requester.post("/v1/jobs", json=scene.spec(name="once"), headers=headers)
    other = scene.requester.post("/v1/jobs", json=scene.spec(name="twice"), headers=headers)
    same = "the same job" if first.json()["id"] == again.json()["id"] else "another job"
    names = [job["name"] for job in scene.requester.get("/v1/jobs", params={"limit": 500}).json()["items"]]
    deposits = "one deposit" if names.count("once") == 1 and "twice" not in names else "another deposit"
    scene.requester.post(f"/v1/jobs/{first.json()['id']}/cancel")
    return f"post again {again.status_code}, {same}; another body {other.status_code}; {deposits}"


@attack(
    "duplicate submit",
    "another commitment conflict; another's replica not_found; worker payable 10; finished; books balanced",
)
def a_second_commitment_and_one_for_another(scene: Scene) -> str:
    job = scene.post()
    workers = job.team(HONEST, HONEST, HONEST)
    thief, victim, _ = workers
    job.gather(*workers)
    job.commit(thief)
    held = thief.newest()
    thief.poll(commitments=[thief.commitment(held, sealed=victim.commitment(victim.newest()).sealed)])
    second = refusal(thief)
    thief.poll(commitments=[victim.commitment(victim.newest())])
    job.play(*workers)
    return f"another commitment {second}; another's replica {refusal(thief)}; {job.seen(worker=workers)}"
