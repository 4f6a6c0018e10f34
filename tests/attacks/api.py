"""Repeated requests: a sign-in, a post, a token without an owner."""

from tests.attacks.commitments import refusal
from tests.attacks.registry import attack
from tests.attacks.scene import Scene
from tests.kit.behaviour import HONEST


@attack("replayed API request", "sign-in again 422; worker payable 10; finished; books balanced")
def another_s_sign_in_is_sent_again(scene: Scene) -> str:
    """An eavesdropper cannot use a signed message: its nonce is good once."""
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


@attack("a revoked token", "made 201; it posts 201; revoked 204; it posts 401, reads 401, revokes 401")
def a_leaked_token_after_its_end(scene: Scene) -> str:
    """A name may be taken again; the old secret stays nobody's."""
    name = f"leaked-{scene.key().to_hex()[2:10]}"
    asked = {"name": name, "role": "admin"}
    made = scene.requester.post("/v1/tokens", json=asked)
    with scene.market.http(made.json()["token"]) as leaked:
        posted = leaked.post("/v1/jobs", json=scene.spec(name=name))
        scene.requester.post(f"/v1/jobs/{posted.json()['id']}/cancel").raise_for_status()
        ended = scene.requester.delete(f"/v1/tokens/{name}")
        scene.requester.post("/v1/tokens", json=asked).raise_for_status()
        again = leaked.post("/v1/jobs", json=scene.spec(name=name))
        reads, revokes = leaked.get("/v1/tokens"), leaked.delete(f"/v1/tokens/{name}")
    told = f"it posts {again.status_code}, reads {reads.status_code}, revokes {revokes.status_code}"
    return f"made {made.status_code}; it posts {posted.status_code}; revoked {ended.status_code}; {told}"


@attack(
    "parameters for strangers",
    "public: stranger 200, blob 200, worker 200; workers: stranger 401, blob 401, worker 200; "
    "requester: stranger 401, blob 401, worker 403",
)
def a_model_is_asked_for_at_every_door(scene: Scene) -> str:
    """Trained parameters are for the readers that the spec names, by the job's name and by the blob's alike."""
    seen = []
    for visibility in ("public", "workers", "requester"):
        job = scene.post(visibility=visibility, optimizer=TRAINED[visibility])
        team = job.team(HONEST, HONEST, HONEST)
        job.play(*team)
        parameters = f"/v1/jobs/{job.id}/parameters"
        with scene.market.http() as stranger:
            doors = (stranger.get(parameters), stranger.get(f"/v1/blobs/{job.fetch_view()['parameters']}"))
        codes = [answer.status_code for answer in (*doors, team[0].http.get(parameters))]
        seen.append("{}: stranger {}, blob {}, worker {}".format(visibility, *codes))
    return "; ".join(seen)


TRAINED = {
    visibility: {"name": "sgd", "lr": rate}
    for visibility, rate in {"public": 0.5, "workers": 0.25, "requester": 0.0625}.items()
}
"""Three models, for equal ones are one blob."""
