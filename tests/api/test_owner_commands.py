"""Commands for a token owner's webhooks, and for an administrator's limits of its spending."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from gradmarket import Market
from gradmarket.cli import app as command
from tests.api.api_service import Service
from tests.api.test_authorisation import JOB
from tests.api.test_tokens import made

HOOK = "https://1.1.1.1/gradmarket"
GRAD = 10**18


def run(service: Service, words: Sequence[str], token: str | None = None) -> Result:
    return CliRunner().invoke(command, [*words, "--market", service.url, "--token", token or service.token])


def run_json(service: Service, *words: str, token: str | None = None) -> Any:
    done = run(service, [*words, "--json"], token)
    assert done.exit_code == 0, done.output
    return json.loads(drop_log_lines(done))


def drop_log_lines(done: Result) -> str:
    """Returns the command's output without the lines that the service logs meanwhile."""
    return "\n".join(line for line in done.stdout.splitlines() if "[info" not in line)


def test_a_webhook_is_made_listed_tried_and_removed(service: Service) -> None:
    mine = made(service, "hooked", "submit")
    done = run(service, ["webhook", "add", HOOK, "--on", "job.finished"], mine)
    assert done.exit_code == 0, done.output
    assert drop_log_lines(done).startswith("whsec_"), "the secret alone goes to standard output"
    (shown,) = run_json(service, "webhook", "list", token=mine)
    assert (shown["url"], shown["happenings"], shown["waiting"]) == (HOOK, ["job.finished"], 0)
    assert "secret" not in shown
    assert run_json(service, "webhook", "ping", shown["id"], token=mine)["waiting"] == 1
    assert shown["id"] in run(service, ["webhook", "list"], mine).output
    assert run_json(service, "webhook", "remove", shown["id"], token=mine) == {"removed": shown["id"]}
    assert run_json(service, "webhook", "list", token=mine) == []
    again = run(service, ["webhook", "remove", shown["id"]], mine)
    assert (again.exit_code, "no webhook" in again.output) == (2, True)


def test_a_webhook_s_mistakes_are_a_sentence_each(service: Service) -> None:
    for words, fault in (
        (["webhook", "add", "http://127.0.0.1:9"], "its host is not a public address"),
        (["webhook", "add", "hooks.example"], "neither http nor https"),
        (["webhook", "add", HOOK, "--on", "job.done"], "job.finished"),
        (["webhook", "ping", "none"], "webhook_id"),
    ):
        done = run(service, words)
        assert (done.exit_code, fault in done.output) == (2, True), done.output
        assert "Traceback" not in done.output


def test_python_has_webhooks_too(service: Service) -> None:
    with Market(service.url, made(service, "pythonic", "submit")) as market:
        created = market.add_webhook(HOOK, "job.paused", "job.failed")
        assert created.secret.startswith("whsec_")
        assert [one.happenings for one in market.webhooks()] == [["job.paused", "job.failed"]]
        market.remove_webhook(created.id)
        assert list(market.webhooks()) == []
        spent = market.spending("pythonic")
        assert (spent.a_day, spent.spent, spent.left) == (None, 0, None)


def test_a_token_s_budget_is_set_shown_and_kept_to(service: Service, tmp_path: Path) -> None:
    wrong = run(service, ["token", "create", "spender", "--role", "submit", "--budget", "a lot"])
    assert wrong.exit_code == 2
    assert "spender" not in {token["name"] for token in run_json(service, "token", "list")}, (
        "it may not spend without limit"
    )
    done = run(service, ["token", "create", "spender", "--role", "submit", "--budget", "1 GRAD"])
    assert done.exit_code == 0, done.output
    mine = drop_log_lines(done).strip()
    assert "may spend 1 GRAD a day; 0 GRAD spent in 24 hours, 1 GRAD left" in run(
        service, ["token", "limit", "spender"], mine
    ).output.replace("\n", " ")
    job = tmp_path / "job.json"
    job.write_text(json.dumps(JOB | {"price": "0.3 GRAD"}))  # at most five replicas of its task
    refused = run(service, ["job", "submit", str(job), "--yes"], mine)
    assert refused.exit_code == 2
    assert "the token spender has 1 GRAD left of its 1 GRAD a day" in refused.output.replace("\n", " ")
    assert run_json(service, "token", "limit", "spender", "2 GRAD")["left"] == str(2 * GRAD)
    assert run(service, ["job", "submit", str(job), "--yes"], mine).exit_code == 0
    assert run_json(service, "token", "limit", "spender", token=mine)["left"] == str(GRAD // 2)
    assert run_json(service, "token", "limit", "spender", "any")["a_day"] is None
    assert run(service, ["token", "limit", "spender", "a lot"]).exit_code == 2
    assert run(service, ["token", "limit", "spender", "9 GRAD"], mine).exit_code == 2, "only an admin sets it"


def test_a_plan_contains_the_market_s_price_guide(service: Service, tmp_path: Path) -> None:
    job = tmp_path / "job.json"
    job.write_text(json.dumps(JOB))
    plan = ["job", "plan", str(job), "--parameters", "1e6"]
    assert "no job paid anybody here" in run_json(service, *plan)["prices"]
    elsewhere = CliRunner().invoke(command, [*plan, "--market", "http://127.0.0.1:9", "--json"])
    assert "prices" not in json.loads(elsewhere.stdout), "without a service there is no guidance, and no error"
