"""Tags and notes by the API and the command line, jobs found and compared by them, and more rounds of a job."""

import json
import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from gradmarket.cli import app
from gradmarket.market.errors import JobRefused
from gradmarket.market.job import JobSpec
from requester.features.continuing import continued_jobs
from requester.features.pages.runs_page import RunsQuery
from requester.store.tables import Job
from tests.api.api_service import Service
from tests.lanes import FULL

Posted = Callable[..., dict[str, Any]]


def run(service: Service, *words: str) -> Any:
    return CliRunner().invoke(app, ["job", *words, "--market", service.url, *_token(service, words[0])])


def answered(printed: str) -> Any:
    """Returns the JSON among the lines that the service writes beside it."""
    found = re.search(r"^[\[{]", printed, re.M)
    assert found is not None, printed
    return json.JSONDecoder().raw_decode(printed[found.start() :])[0]


def _token(service: Service, command: str) -> list[str]:
    return [] if command in ("list", "show", "diff", "checkpoints") else ["--token", service.token]


def test_tags_and_a_note_are_posted_found_and_changed(service: Service, posted: Posted) -> None:
    told = posted(tags=["wide", "baseline", "wide"], note="as in the paper")
    assert (told["tags"], told["note"]) == (["baseline", "wide"], "as in the paper")
    assert not told["spec"].keys() & {"tags", "note"}, "no digest has them"
    other = posted(tags=["wider"])["id"]

    def found(tag: str) -> list[str]:
        return [job["id"] for job in service.requester.get("/v1/jobs", params={"tag": tag}).json()["items"]]

    assert found("wide") == [told["id"]]
    assert found("wider") == [other]
    assert found("w") == []
    assert service.requester.get("/v1/jobs", params={"tag": "a|b"}).status_code == 422
    changed = service.requester.patch(f"/v1/jobs/{told['id']}", json={"tags": ["kept"]}).json()
    assert (changed["tags"], changed["note"]) == (["kept"], "as in the paper")
    assert found("wide") == []
    service.requester.post(f"/v1/jobs/{told['id']}/cancel")
    assert service.requester.patch(f"/v1/jobs/{told['id']}", json={"note": ""}).json()["note"] == "", (
        "of an ended one too"
    )


def test_nobody_labels_another_s_job_and_no_odd_word_is_a_tag(service: Service, posted: Posted) -> None:
    told = posted()["id"]
    made = service.requester.post("/v1/tokens", json={"name": "labels", "role": "submit"}).json()
    headers = {"Authorization": f"Bearer {made['token']}"}
    refused = httpx.patch(f"{service.url}/v1/jobs/{told}", json={"tags": ["mine"]}, headers=headers)
    assert refused.status_code == 403
    assert httpx.patch(f"{service.url}/v1/jobs/{told}", json={"tags": ["mine"]}).status_code == 401
    for tags in (["two words"], ["x" * 41], ["a"] * 21, "word"):
        assert service.requester.patch(f"/v1/jobs/{told}", json={"tags": tags}).status_code == 422
    assert service.requester.get(f"/v1/jobs/{told}").json()["tags"] == []


def test_the_command_line_labels_lists_and_compares(service: Service, posted: Posted) -> None:
    first, second = posted(name="one")["id"], posted(name="two", rounds=4)["id"]
    done = run(service, "label", first, "--tag", "mine-1", "--note", "the first")
    assert done.exit_code == 0, done.output
    assert "mine-1" in done.stdout
    listed = run(service, "list", "--tag", "mine-1", "--json")
    assert [job["id"] for job in answered(listed.stdout)] == [first]
    nothing = run(service, "label", first)
    assert nothing.exit_code != 0
    assert "add --tag WORD" in nothing.output
    different = answered(run(service, "diff", first, second, "--json").stdout)
    assert (different.pop("name"), different.pop("rounds")) == (["one", "two"], [3, 4])
    assert list(different) == ["seed"], "the service drew one for each"
    table = run(service, "diff", first, second).stdout
    assert "rounds" in table
    assert "They are alike" in run(service, "diff", first, first).stdout
    assert answered(run(service, "checkpoints", first, "--json").stdout) == []
    assert run(service, "download", first, "--best").exit_code != 0


def test_the_page_of_runs_shows_what_differs(service: Service, posted: Posted) -> None:
    one = posted(name="<b>one</b>", tags=["pair"], optimizer={"name": "sgd", "lr": 0.1})["id"]
    two = posted(tags=["pair"], note="slower", optimizer={"name": "sgd", "lr": 0.01})["id"]
    posted(tags=["pairs"])
    text = httpx.get(f"{service.url}/runs", params={"tag": "pair"}).text
    assert text.count('data-label="optimizer.lr"') == 2
    assert all(part in text for part in (one, two, "slower", "&lt;b&gt;one&lt;/b&gt;", "Runs of pair"))
    assert "<b>one" not in text
    assert "lr 0.01 loss" in text, "a line is called by what is its own"
    same = httpx.get(f"{service.url}/page/runs", params={"job": [one, two, "nonsense"]}).text
    assert same.count('data-label="optimizer.lr"') == 2
    assert "No job has this tag" in httpx.get(f"{service.url}/page/runs", params={"tag": "none"}).text
    assert "Name a tag" in httpx.get(f"{service.url}/runs").text
    market = httpx.get(f"{service.url}/page/market", params={"tag": "pair"}).text
    assert (one in market, 'href="/runs?tag=pair"' in market) == (True, True)
    assert "slower" in httpx.get(f"{service.url}/jobs/{two}").text


def test_more_rounds_wait_for_the_end_of_a_job_that_goes_on(service: Service, posted: Posted) -> None:
    first = posted(rounds=3, tags=["long"])["id"]
    more = service.requester.post(f"/v1/jobs/{first}/extend", json={"rounds": 2, "budget": "1000000000000"})
    assert more.status_code == 201, more.text
    told = more.json()
    assert told["tags"] == ["long"], "it is in the charts and tables of its group"
    assert (told["rounds"], told["spec"]["continue_from"]["job"]) == (2, first)
    assert (told["costs"]["budget"], told["spec"]["seed"]) == ("1000000000000", posted_seed(service, first))
    service.requester.post(f"/v1/jobs/{first}/cancel")
    refused = service.requester.post(f"/v1/jobs/{first}/extend", json={"rounds": 2})
    assert (refused.status_code, "never finished" in refused.text) == (422, True)
    assert service.requester.post("/v1/jobs/0000000000000000/extend", json={"rounds": 2}).status_code == 404
    assert service.requester.post(f"/v1/jobs/{first}/extend", json={"rounds": 0}).status_code == 422
    service.requester.post(f"/v1/jobs/{told['id']}/cancel")


def posted_seed(service: Service, job: str) -> int:
    return int(service.requester.get(f"/v1/jobs/{job}").json()["spec"]["seed"])


@FULL
def test_a_token_has_few_drafts_that_wait_for_other_jobs(
    service: Service, posted: Posted, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = posted(rounds=3)["id"]
    with service.context.reading() as reader:  # others' tests may have left some
        most = 2 + continued_jobs.count_continuing_drafts(reader, reader.get_one(Job, first).token)
    monkeypatch.setattr(continued_jobs, "MOST_WAITING", most)

    def extend() -> httpx.Response:
        return service.requester.post(f"/v1/jobs/{first}/extend", json={"rounds": 2, "budget": "1000000000000"})

    more = [extend().json() for _ in range(2)]
    assert {job["reason"] for job in more} == {f"waits for the end of job {first}, which it continues"}
    refused = extend()
    assert refused.status_code == 422
    assert f"{most} jobs of this token wait for the end of others: cancel one" in refused.text
    assert posted()["state"] == "draft", "what continues none is posted"
    service.requester.post(f"/v1/jobs/{more[0]['id']}/cancel")
    assert extend().status_code == 201
    for job in service.requester.get("/v1/jobs", params={"state": "draft"}).json()["items"]:
        service.requester.post(f"/v1/jobs/{job['id']}/cancel")


@pytest.mark.parametrize("odd", ["%00", "a%1Bb", "%E2%80%AE"])
def test_no_odd_text_reaches_the_database_from_a_page(service: Service, odd: str) -> None:
    for page in ("/runs?job=", "/page/runs?job=", "/runs?tag=", "/page/runs?tag=", "/?tag=", "/?q=", "/page/market?q="):
        status = httpx.get(f"{service.url}{page}{odd}").status_code
        assert status in ((200,) if "job=" in page else (404, 422)), page


@pytest.mark.parametrize("odd", ["a\0b", "\ud800", "\x1b[31m", "two\nlines", "\u202egnp"])
def test_no_odd_text_is_a_note_or_a_job_to_continue(service: Service, posted: Posted, odd: str) -> None:
    job = posted()
    for method, path, body in (
        ("PATCH", f"/v1/jobs/{job['id']}", {"note": odd}),
        ("POST", "/v1/jobs", {"continue_from": odd}),
        ("POST", "/v1/jobs", {"continue_from": {"job": odd}}),
        ("POST", f"/v1/jobs/{job['id']}/extend", {"rounds": 1, "budget": odd}),
    ):
        sent = json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Idempotency-Key": "odd"}
        answer = service.requester.request(method, path, content=sent, headers=headers)
        assert answer.status_code == 422, (path, body, answer.text)


def test_a_tag_is_found_in_its_own_case_alone(service: Service, posted: Posted) -> None:
    upper, lower = posted(tags=["Case"])["id"], posted(tags=["case"])["id"]
    for tag, job in (("Case", upper), ("case", lower)):
        found = service.requester.get("/v1/jobs", params={"tag": tag}).json()["items"]
        assert [one["id"] for one in found] == [job]


def test_a_repeated_extension_gets_its_stored_answer_whatever_became_of_the_job(
    service: Service, posted: Posted
) -> None:
    first = posted(rounds=3)["id"]
    keyed = {"headers": {"Idempotency-Key": f"again {first}"}}

    def extend(rounds: int) -> httpx.Response:
        body = {"rounds": rounds, "budget": "1000000000000"}
        return service.requester.post(f"/v1/jobs/{first}/extend", json=body, **keyed)

    told = extend(2)
    service.requester.post(f"/v1/jobs/{first}/cancel")
    again = extend(2)
    assert (again.status_code, again.json()["id"]) == (201, told.json()["id"])
    assert extend(3).status_code == 409


def test_the_refused_extension_of_a_private_job_names_the_remedy() -> None:
    private = {"inputs": {"x": {"dtype": "float32"}}, "holders": ["0x" + "1" * 40]}
    fields = {"name": "n", "model": {"architecture": "mlp"}, "data": private, "step": {"rows": 1}, "rounds": 1}
    fields |= {"optimizer": {"name": "sgd", "lr": 0.1}, "price": "1"}
    continued_jobs.check_extendable(JobSpec.model_validate(fields))
    fields |= {"privacy": {"epsilon": 9.0, "delta": 1e-6, "noise_multiplier": 1.0}}
    with pytest.raises(JobRefused, match="would not be counted in further ones: post a new job"):
        continued_jobs.check_extendable(JobSpec.model_validate(fields))


def test_one_set_of_runs_is_one_page() -> None:
    one, two = "00000000000000aa", "00000000000000bb"
    assert RunsQuery(job=[two, one, one]).link() == RunsQuery(job=[f"{one},{two} nonsense"]).link()
    many = [f"{number:016x}" for number in range(40)]
    assert len(RunsQuery(job=many).job) == 20
