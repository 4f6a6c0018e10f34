"""A job's happenings are posted to its owner's address, signed, until they are taken; never to a private address."""

import io
import json
import socket
import threading
from typing import Any
from unittest.mock import ANY

import pytest
from rich.console import Console

from gradmarket.commands.features.webhooks import build_table
from gradmarket.market.terms import JobState, Role
from gradmarket.market.views.service_views import WebhookView
from gradmarket.network.addresses import resolve_within
from requester.features.webhooks import sending, webhook_rows
from requester.features.webhooks.sending import GIVEN_UP_S, TRY_S, UNREACHED, Letter, compute_wait, post_letter
from requester.features.webhooks.webhook_rows import FULL, MOST, MOST_WAITING, Webhook, WebhookDelivery
from requester.store import stored_times
from tests import lanes
from tests.features.webhooks.conftest import POSTING, NewWebhookMarket, Receiver
from tests.patience import PATIENCE_S


def test_a_finished_job_s_webhook_goes_signed_to_its_owner_and_admins_alone(
    new_webhook_market: NewWebhookMarket, receiver: Receiver
) -> None:
    told = new_webhook_market(receiver.url)
    alice, bob, admin = told.token("alice"), told.token("bob"), told.token("root", Role.ADMIN)
    secrets = {name: told.add(who, f"{receiver.url}/{name}")["secret"] for name, who in
               (("alice", alice), ("bob", bob), ("root", admin))}  # fmt: skip
    market = told.market
    market.play(*(market.worker() for _ in range(3)))
    assert (market.state(), receiver.list_types()) == (JobState.FINISHED, ["job.finished"] * 2)
    told.verify(Receiver("", got=receiver.got[:1]), secrets["alice"])
    said = json.loads(receiver.got[0][1])
    about = {"job": market.job, "name": "test", "state": "finished", "token": "alice", "reason": ANY}
    assert said == {"type": "job.finished", "timestamp": ANY, "data": about}
    assert receiver.got[0][0]["content-type"] == "application/json"
    assert [(one["delivered_at"] is None, one["waiting"], one["trouble"]) for one in told.listed(alice)] == [
        (False, 0, "")
    ]
    assert [one["token"] for one in told.listed(admin)].count("bob") == 1
    assert told.listed(bob)[0]["delivered_at"] is None


def test_a_pause_s_webhook_has_the_command_that_resumes_the_job(
    new_webhook_market: NewWebhookMarket, receiver: Receiver
) -> None:
    told = new_webhook_market(receiver.url)
    alice = told.token("alice")
    told.add(alice, receiver.url)
    assert told.client.post(f"/v1/jobs/{told.market.job}/pause", headers=alice).status_code == 200
    told.market.drive()
    said = json.loads(receiver.got[0][1])
    job = told.market.job
    about = {"state": "paused", "reason": "paused by its requester", "remedy": f"gradmarket job resume {job}"}
    assert (said["type"], said["data"]) == ("job.paused", {"job": job, "name": "test", "token": "alice"} | about)


def test_a_webhook_gets_only_its_subscribed_happenings(
    new_webhook_market: NewWebhookMarket, receiver: Receiver
) -> None:
    told = new_webhook_market(receiver.url)
    told.add(told.token("alice"), receiver.url, happenings=["job.round_closed", "job.cancelled"])
    told.market.play(*(told.market.worker() for _ in range(3)))
    assert receiver.list_types() == ["job.round_closed"]


def test_undelivered_webhooks_are_sent_again_in_order_after_a_crash_too(
    new_webhook_market: NewWebhookMarket, receiver: Receiver
) -> None:
    told = new_webhook_market(receiver.url)
    alice = told.token("alice")
    secret = told.add(alice, receiver.url, happenings=["job.round_closed", "job.finished"])["secret"]
    receiver.status = 503
    market = told.market
    market.play(*(market.worker() for _ in range(3)))
    assert receiver.list_types() == ["job.round_closed"], "the second waits for the first"
    (shown,) = told.listed(alice)
    assert (shown["waiting"], shown["trouble"]) == (2, "it answered 503")
    market.crash()
    market.lapse(compute_wait(1) - 2.1)
    assert len(receiver.got) == 1
    market.lapse(2.2)
    assert len(receiver.got) == 2
    receiver.status = 204
    market.lapse(compute_wait(2))
    assert receiver.list_types() == ["job.round_closed"] * 3 + ["job.finished"]
    ids = [headers["webhook-id"] for headers, _body in receiver.got]
    assert len(set(ids[:3])) == 1
    assert ids[3] != ids[0]
    assert len({headers["webhook-timestamp"] for headers, _body in receiver.got[:3]}) == 3
    told.verify(Receiver("", got=receiver.got[2:]), secret)
    assert market.all(WebhookDelivery) == []


def test_a_try_that_is_killed_is_made_again(new_webhook_market: NewWebhookMarket, receiver: Receiver) -> None:
    told = new_webhook_market(receiver.url)
    told.add(told.token("alice"), receiver.url)
    market = told.market
    market.stages = tuple(stage for stage in market.stages if stage is not POSTING)
    market.cancel()
    (row,) = market.all(WebhookDelivery)
    assert sending._begin_try(market.context, row.number) is not None
    assert sending._begin_try(market.context, row.number) is None, "another process has the try"
    market.crash()
    market.stages += (POSTING,)
    market.lapse(0.0)
    assert receiver.list_types() == []
    market.lapse(TRY_S + compute_wait(1) - 1)
    assert receiver.list_types() == [], "a slow try in another process would go on"
    market.lapse(1)
    assert receiver.list_types() == ["job.cancelled"]


def test_a_clock_that_was_set_back_does_not_hold_a_try_up(
    new_webhook_market: NewWebhookMarket, receiver: Receiver
) -> None:
    told = new_webhook_market(receiver.url)
    told.add(told.token("alice"), receiver.url)
    market = told.market
    market.stages = tuple(stage for stage in market.stages if stage is not POSTING)
    market.cancel()
    market.clock.now -= 10 * compute_wait(99)
    with market.context.begin() as work:
        assert stored_times.bring_back(work, market.clock()) > 0
    with market.context.begin() as work:
        assert stored_times.bring_back(work, market.clock()) == 0
    market.stages += (POSTING,)
    market.lapse(TRY_S + compute_wait(99) + 1)
    assert receiver.list_types() == ["job.cancelled"]


@lanes.FULL
def test_a_receiver_that_is_gone_is_given_up_after_days_and_its_owner_sees_why(
    new_webhook_market: NewWebhookMarket, receiver: Receiver
) -> None:
    told = new_webhook_market(receiver.url)
    alice = told.token("alice")
    told.add(alice, receiver.url)
    receiver.status = 404
    told.market.cancel()
    for _ in range(40):
        told.market.lapse(compute_wait(99))
    (shown,) = told.listed(alice)
    tries = len(receiver.got)
    assert (shown["waiting"], shown["trouble"]) == (0, f"it answered 404; given up after {tries} tries")
    assert GIVEN_UP_S / compute_wait(99) < tries < 20


def test_a_private_address_gets_nothing_unless_the_operator_names_it(
    new_webhook_market: NewWebhookMarket, receiver: Receiver
) -> None:
    """The cheating twin: a token's owner has the service post into its own network."""
    told = new_webhook_market()
    alice = told.token("alice")
    for url in (receiver.url, "https://169.254.169.254/latest", "https://[::1]/", "http://localhost:80"):
        refused = told.add(alice, url, status=422)
        assert "not a public address; its operator may name that origin" in refused["detail"], url
    for url in ("ftp://example.com", "https://name:word@example.com/", "nonsense"):
        refused = told.add(alice, url, status=422)
        assert (refused["errors"][0]["field"], refused["type"]) == ("url", "/errors#refused")
    assert "need https" in told.add(alice, "http://1.1.1.1/hook", status=422)["detail"]
    assert told.listed(alice) == []


def test_a_name_that_leads_elsewhere_later_is_asked_anew_each_time(receiver: Receiver) -> None:
    letter = Letter("0" * 16, receiver.url.replace("127.0.0.1", "hooks.example"), {}, b"{}", b"")
    for address in ("127.0.0.1", "10.0.0.1", "::ffff:127.0.0.1"):
        said = post_letter(letter, frozenset(), lambda _host, _port, address=address: [address])
        assert said == UNREACHED
    assert receiver.got == []


def test_a_redirect_is_followed_nowhere(new_webhook_market: NewWebhookMarket, receiver: Receiver) -> None:
    told = new_webhook_market(receiver.url)
    alice = told.token("alice")
    told.add(alice, receiver.url)
    receiver.status = 307
    told.market.cancel()
    assert len(receiver.got) == 1
    assert told.listed(alice)[0]["trouble"] == "it answered 307"


def test_a_revoked_token_s_webhook_gets_nothing_more(new_webhook_market: NewWebhookMarket, receiver: Receiver) -> None:
    told = new_webhook_market(receiver.url)
    told.add(told.token("alice"), receiver.url)
    told.revoke("alice")
    told.market.cancel()
    assert receiver.got == []


def test_the_next_token_of_a_name_does_not_inherit_the_webhooks_of_a_revoked_one(
    new_webhook_market: NewWebhookMarket, receiver: Receiver
) -> None:
    """The cheating twin: the holder of a leaked and revoked token would get webhooks of the new one's jobs."""
    told = new_webhook_market(receiver.url)
    before = told.token("alice")
    told.add(before, f"{receiver.url}/before")
    market = told.market
    market.stages = tuple(stage for stage in market.stages if stage is not POSTING)
    market.cancel()
    told.revoke("alice")
    alice = told.token("alice")
    assert (told.listed(alice), market.all(Webhook), market.all(WebhookDelivery)) == ([], [], [])
    told.add(alice, receiver.url, happenings=["job.cancelled"])
    market.stages += (POSTING,)
    market.drive()
    assert receiver.list_types() == []


def test_a_delivery_of_a_token_that_expired_meanwhile_is_dropped(
    new_webhook_market: NewWebhookMarket, receiver: Receiver
) -> None:
    told = new_webhook_market(receiver.url)
    told.add(told.token("alice", until=told.market.clock() + 60), receiver.url)
    receiver.status = 503
    told.market.cancel()
    assert len(receiver.got) == 1
    receiver.status = 200
    told.market.lapse(61)
    assert len(receiver.got) == 1
    assert (told.market.all(Webhook), told.market.all(WebhookDelivery)) == ([], [])


def test_a_webhook_s_secret_is_shown_once_and_to_its_owner_alone(
    new_webhook_market: NewWebhookMarket, receiver: Receiver
) -> None:
    told = new_webhook_market(receiver.url)
    alice, bob, reads = told.token("alice"), told.token("bob"), told.token("carol", Role.READ)
    made = told.add(alice, receiver.url)
    assert made["secret"].startswith("whsec_")
    assert "secret" not in told.listed(alice)[0]
    assert "secret" not in told.client.post(f"/v1/webhooks/{made['id']}/ping", headers=alice).json()
    told.market.drive()
    assert receiver.list_types() == ["ping"]
    for who, status in ((bob, 404), (reads, 403), ({}, 401)):
        assert told.client.post(f"/v1/webhooks/{made['id']}/ping", headers=who).status_code == status
        assert told.client.delete(f"/v1/webhooks/{made['id']}", headers=who).status_code == status
    assert told.listed(bob) == []
    assert told.add(alice, receiver.url, status=409)["detail"].endswith("a webhook to this address: remove it first")
    assert told.client.delete(f"/v1/webhooks/{made['id']}", headers=alice).status_code == 204
    told.market.cancel()
    assert receiver.list_types() == ["ping"]


@lanes.FULL
def test_a_token_has_so_many_webhooks_and_no_unknown_happening(
    new_webhook_market: NewWebhookMarket, receiver: Receiver
) -> None:
    told = new_webhook_market(receiver.url)
    alice = told.token("alice")
    for number in range(MOST):
        told.add(alice, f"{receiver.url}/{number}")
    assert "may have no more" in told.add(alice, f"{receiver.url}/more", status=409)["detail"]
    refused = told.add(alice, receiver.url, status=422, happenings=["job.finish"])
    assert "job.finished" in refused["detail"]


@pytest.mark.parametrize(("tries", "seconds"), [(1, 5), (2, 20), (3, 80), (7, 20_480), (8, 21_600), (10_000, 21_600)])
def test_a_wait_is_four_times_the_last_up_to_six_hours(tries: int, seconds: float) -> None:
    assert compute_wait(tries) == seconds


@lanes.FULL
def test_a_ping_waits_once_and_a_webhook_s_queue_has_an_end(
    new_webhook_market: NewWebhookMarket, receiver: Receiver
) -> None:
    """The cheating twin: a token's owner fills the database with messages that its own dead receiver never takes."""
    told = new_webhook_market(receiver.url)
    alice = told.token("alice")
    receiver.status = 503
    made = told.add(alice, receiver.url)
    pings = [told.client.post(f"/v1/webhooks/{made['id']}/ping", headers=alice) for _ in range(3)]
    assert [answer.status_code for answer in pings] == [202, 409, 409]
    told.market.drive()
    again = told.client.post(f"/v1/webhooks/{made['id']}/ping", headers=alice)
    assert (again.status_code, "waits: it answered 503" in again.json()["detail"]) == (409, True)
    with told.market.context.begin() as work:
        row = work.get_one(Webhook, made["id"])
        for number in range(MOST_WAITING + 2):
            webhook_rows.queue_delivery(work, row, "job.paused", {"number": number}, told.market.clock())
            work.flush()
    (shown,) = told.listed(alice)
    assert (shown["waiting"], shown["trouble"]) == (MOST_WAITING, FULL)
    bodies = [json.loads(one.body)["data"]["number"] for one in told.market.all(WebhookDelivery)]
    assert sorted(bodies) == list(range(2, MOST_WAITING + 2)), "the oldest went"
    told.market.drive()
    assert told.listed(alice)[0]["trouble"] == f"it answered 503; {FULL}"


def test_a_slow_receiver_holds_up_its_own_token_alone(new_webhook_market: NewWebhookMarket, receiver: Receiver) -> None:
    told = new_webhook_market(receiver.url)
    market, alice, bob = told.market, told.token("alice"), told.token("bob", Role.ADMIN)
    addresses = f"{receiver.url}/slow", f"{receiver.url}/another", receiver.url
    added = [told.add(who, address)["id"] for who, address in zip((alice, alice, bob), addresses, strict=True)]
    market.stages = tuple(stage for stage in market.stages if stage is not POSTING)
    market.cancel()
    receiver.slow = threading.Event()
    numbers = {row.webhook_id: row.number for row in market.all(WebhookDelivery)}
    slow, another, quick = (numbers[webhook] for webhook in added)
    begun = sending.start_try(market.context, slow)
    assert begun is not None
    with market.context.reading() as reader:
        assert sending.ready(reader, market.clock()) == [str(quick)]
    assert sending.start_try(market.context, another) is None
    taken = sending.start_try(market.context, quick)
    assert taken is not None
    taken.result(PATIENCE_S)
    assert not begun.done()
    receiver.slow.set()
    begun.result(PATIENCE_S)
    with market.context.reading() as reader:
        assert sending.ready(reader, market.clock()) == [str(another)]


def test_a_look_up_that_does_not_end_ends_the_try(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    ever = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_asked, **_named: ever.wait(PATIENCE_S) and [])
    letter = Letter("0" * 16, "https://hooks.example/", {}, b"{}", b"")
    assert post_letter(letter, frozenset(), resolve_within(0.01)) == UNREACHED
    ever.set()


def test_names_that_resolve_here_and_names_that_do_not_are_refused_alike(
    new_webhook_market: NewWebhookMarket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cheating twin: a token's owner would learn the hosts of the service's network."""
    told = new_webhook_market()
    alice = told.token("alice")

    def answer(host: str, *_asked: object, **_named: object) -> list[tuple[object, ...]]:
        if host == "vault.internal":
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.1.2.3", 443))]
        raise socket.gaierror("no such host")

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    there, nowhere = (told.add(alice, f"https://{name}/", 422)["detail"] for name in ("vault.internal", "no.internal"))
    assert there == nowhere
    assert "10.1" not in there


def test_an_address_with_brackets_is_shown_as_it_is() -> None:
    """The cheating twin: one token's address breaks the table of an admin."""
    url = "https://a.example/[/x][bold]"
    made: dict[str, Any] = {
        "id": "0" * 16,
        "token": "a",
        "happenings": [],
        "created_at": None,
        "delivered_at": None,
        "waiting": 0,
    }
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(build_table([WebhookView(**made, url=url, trouble="[/]")]))
    shown = console.export_text()
    assert url in shown
    assert "[/] " in shown
