"""The web page in Chromium, over a running market with a cheat."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, expect

from gradmarket.demo import service
from gradmarket.demo.children import DemoProcesses
from gradmarket.demo.workers import HONEST, JOB
from gradmarket.pages import format_bytes
from tests.chromium import chromium, needs_chromium
from tests.kit.worker_threads import run_workers
from tests.lanes import FULL
from tests.patience import wait_until

STEPS: Final = ("offer", "seals", "waves", "reveals", "verdicts", "audit", "payment")
CAST: Final = (HONEST, "sign_flip", HONEST)
ALL_ASK: Final = f"\ngradmarket_workers_asking {len(CAST)}.0\n"
SURE: Final = {
    "tasks_per_round": 4,
    "replication": {"name": "fixed", "replicas": 2, "max_replicas": 3},
    "deadlines": {"lease_s": 120, "wave_s": 60, "upload_s": 60},
}
"""A cheat answers, and is rejected, though the machine is busy: the honest ones alone have no room for so many tasks at
once, and a cheat that is slow to begin is waited for. Later the honest ones are known, and newcomers hardly drawn."""
NAME: Final = 'digits <img src="x" onerror="document.title=1">'

pytestmark = needs_chromium


@dataclass(frozen=True)
class Watched:
    """A market whose job runs to its end while the tests look at it, and its page, opened before the job ran."""

    url: str
    token: str
    job: str
    shown: Page

    def state(self) -> str:
        return str(httpx.get(f"{self.url}/v1/jobs/{self.job}").json()["state"])


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as launched:
        yield launched


@contextmanager
def page(browser: Browser, **how: Any) -> Iterator[Page]:
    """Yields a page on which no script fails and nothing is asked of another host than the market's and its chain's."""
    context = browser.new_context(**how)
    faults: list[str] = []

    def record_error(message: ConsoleMessage) -> None:
        if message.type == "error":
            faults.append(message.text)

    shown = context.new_page()
    shown.on("console", record_error)
    shown.on("pageerror", lambda error: faults.append(str(error)))
    yield shown
    context.close()
    assert faults == []


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("page")
    children = DemoProcesses(folder / "logs")
    served = service.start_service(children, folder / "service")
    try:
        token = (served.data / "keys" / "token").read_text().strip()
        spec = {**JOB, **SURE, "name": NAME, "rounds": 2, "stop": []}
        jobs = f"{served.place.url}/v1/jobs"
        with httpx.Client(headers={"Authorization": f"Bearer {token}"}) as requester, page(browser) as shown:
            job = requester.post(jobs, json=spec).raise_for_status().json()["id"]
            watched = Watched(served.place.url, token, job, shown)
            wait_until(lambda: watched.state() == "running")
            requester.post(f"{jobs}/{job}/pause").raise_for_status()
            shown.goto(f"{watched.url}/jobs/{job}")
            expect(shown.locator("#link")).to_have_text("live")
            with run_workers(watched.url, folder / "workers", CAST, children.end):
                wait_until(lambda: ALL_ASK in httpx.get(f"{watched.url}/metrics").text)
                requester.post(f"{jobs}/{job}/resume").raise_for_status()
                yield watched
    finally:
        children.end()
        service.stop_chain(folder / "service")


def test_a_job_is_watched_live_until_its_end(market: Watched) -> None:
    """Its page was opened before the job ran, and nothing loads it again."""
    shown = market.shown
    expect(shown.locator("td.accepted").first).to_be_attached()
    expect(shown.locator("td.rejected").first).to_be_attached()
    expect(shown.locator(".state")).to_have_text("finished")
    expect(shown.locator("#curve canvas")).to_be_visible()
    expect(shown.get_by_text("2 of 2 rounds done")).to_be_visible()
    expect(shown.get_by_text("The job is finished.")).to_be_visible()


def test_the_browser_proves_a_gradients_story(market: Watched, browser: Browser) -> None:
    with page(browser) as shown:
        _to_the_end(market, shown)
        shown.locator("td.accepted a").first.click()
        expect(shown.locator("#sum")).to_contain_text("statements are proven by this browser")
        assert shown.locator(".checks li.false").count() == 0
        for step in STEPS:
            assert shown.locator(f"[data-step={step}] li.proven").count() > 0, step


@pytest.mark.parametrize(
    ("field", "step"),
    [
        ("verdict_signature", "verdicts"),
        *(
            pytest.param(field, step, marks=FULL)
            for field, step in (
                ("offer_signature", "offer"),
                ("commitment_signature", "seals"),
                ("salt", "reveals"),
                ("secret", "waves"),
                ("audit_link", "audit"),
                ("root", "payment"),
            )
        ),
    ],
)
def test_a_forged_story_turns_red_where_it_is_forged(market: Watched, browser: Browser, field: str, step: str) -> None:
    """The service shows other evidence than it signed: one byte of one field is changed on its way to the browser."""
    with page(browser) as shown:
        _to_the_end(market, shown)
        shown.route("**/v1/jobs/*/tasks/*", lambda route: route.fulfill(json=_forged(route.fetch().json(), field)))
        shown.locator("td.accepted a").first.click()
        expect(shown.locator("#sum")).to_contain_text("are not so")
        assert shown.locator(f"[data-step={step}] li.false").count() > 0


def _forged(evidence: dict[str, Any], field: str) -> dict[str, Any]:
    parts = [evidence, *evidence["replicas"], *evidence["waves"]]
    for part in parts:
        if isinstance(part.get(field), str):
            last = part[field][-3]
            part[field] = part[field][:-3] + ("0" if last != "0" else "1") + part[field][-2:]
    return evidence


def _to_the_end(market: Watched, shown: Page) -> None:
    shown.goto(f"{market.url}/jobs/{market.job}")
    expect(shown.locator(".state")).to_have_text("finished")
    expect(shown.get_by_text("on-chain").first).to_be_visible()
    shown.reload()


@FULL
@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/jobs/{job}",
        "/jobs/{job}/tasks/{job}-0-0-0",
        "/submit",
        "/operator",
        "/errors",
        "/jobs/none",
        "/runs?job={job}",
    ],
)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_are_accessible_and_fit_a_phone(market: Watched, browser: Browser, path: str, scheme: str) -> None:
    viewport = {"width": 390, "height": 800}
    context = browser.new_context(viewport=viewport, color_scheme=scheme, reduced_motion="reduce")
    shown = context.new_page()
    shown.goto(market.url + path.format(job=market.job))
    shown.wait_for_timeout(500)
    found = Axe().run(shown)
    assert found.violations_count == 0, found.generate_report()
    assert shown.evaluate("document.documentElement.scrollWidth") <= 390
    context.close()


@FULL
def test_a_grid_of_many_rounds_scrolls_by_itself_on_a_phone(market: Watched, browser: Browser) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 800})
    shown = context.new_page()
    shown.goto(f"{market.url}/jobs/{market.job}")
    expect(shown.locator(".grid th .hidden").first).to_be_attached()
    expect(shown.get_by_text("anybody may sign in as a worker")).to_be_visible()
    shown.evaluate("""() => {
        const row = document.querySelector(".grid thead tr")
        for (let more = 0; more < 40; more++) row.append(row.lastElementChild.cloneNode(true))
    }""")
    assert shown.evaluate("document.documentElement.scrollWidth") <= 390
    context.close()


@FULL
def test_a_job_s_reason_to_wait_fits_a_phone_without_scrolling(market: Watched, browser: Browser) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 800})
    shown = context.new_page()
    shown.goto(market.url)
    reason = shown.locator("td[data-label='Waits for']").first
    expect(reason).to_be_visible()
    reason.evaluate(
        "cell => { cell.textContent = 'the escrow does not cover another round: fund the job. '.repeat(4) }"
    )
    assert reason.evaluate("cell => cell.getBoundingClientRect().right") <= 390
    assert reason.evaluate("cell => getComputedStyle(cell, '::before').content") == '"Waits for: "'
    context.close()


def test_a_jobs_name_is_shown_and_not_run(market: Watched, browser: Browser) -> None:
    with page(browser) as shown:
        shown.goto(f"{market.url}/jobs/{market.job}")
        expect(shown.locator("h1")).to_have_text(NAME)
        assert shown.title() != "1"


@FULL
def test_a_job_is_planned_and_posted_from_the_form(market: Watched, browser: Browser) -> None:
    with page(browser) as shown:
        shown.goto(f"{market.url}/submit")
        expect(shown.locator("#plan")).to_contain_text("Enter your API token")
        shown.locator("[name=token]").fill(market.token)
        shown.get_by_role("button", name="Use it").click()
        expect(shown.locator("#plan")).to_contain_text("Costs at most")
        rounds = shown.locator("[data-path=rounds]")
        rounds.fill("0")
        expect(shown.locator("#plan")).to_contain_text("rounds")
        expect(rounds).to_have_attribute("aria-invalid", "true")
        rounds.fill("2")
        expect(shown.locator("#plan")).to_contain_text("Costs at most")
        shown.get_by_role("button", name="Post the job").click()
        shown.wait_for_url("**/jobs/*")
        expect(shown.locator("#now .state")).to_be_visible()
        shown.on("dialog", lambda dialog: dialog.accept())
        shown.get_by_role("button", name="Cancel").click()
        expect(shown.locator("#steered")).to_have_text("The job is cancelled.")


@FULL
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_form_s_plan_has_the_price_guide_and_fits(
    market: Watched, browser: Browser, scheme: Any, width: int
) -> None:
    with page(browser) as first:
        _to_the_end(market, first)
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce"
    )
    shown = context.new_page()
    shown.goto(f"{market.url}/submit")
    shown.locator("[name=token]").fill(market.token)
    shown.get_by_role("button", name="Use it").click()
    expect(shown.locator("#plan .guidance")).to_contain_text("a GFLOP")
    found = Axe().run(shown)
    assert found.violations_count == 0, found.generate_report()
    assert shown.evaluate("document.documentElement.scrollWidth") <= width
    context.close()


@FULL
def test_traffic_is_shown_to_everybody_and_coverage_to_the_job_s_readers(market: Watched, browser: Browser) -> None:
    assert httpx.get(f"{market.url}/page/jobs/{market.job}/coverage").status_code == 401
    with page(browser) as shown:
        _to_the_end(market, shown)
        stats = httpx.get(f"{market.url}/v1/jobs/{market.job}/stats").json()
        headers = {"Authorization": f"Bearer {market.token}"}
        parameters = httpx.get(f"{market.url}/v1/jobs/{market.job}/parameters", headers=headers).content
        assert stats["download_bytes"] == len(parameters) * sum(stats["replicas"].values())
        figures = shown.locator(".figures")
        expect(figures).to_contain_text(f"{format_bytes(stats['payload_bytes'])} in {stats['uploads']} payloads")
        expect(figures).to_contain_text(format_bytes(stats["download_bytes"]))
        coverage = shown.locator("#coverage")
        expect(coverage).to_contain_text("Only readers of")
        shown.locator("[name=token]").fill(market.token)
        shown.get_by_role("button", name="Use it").click()
        expect(coverage).to_contain_text("times on average")
        expect(coverage.locator("li").first).to_be_visible()


@FULL
def test_nobody_steers_without_a_token(market: Watched, browser: Browser) -> None:
    context = browser.new_context()
    shown = context.new_page()
    shown.goto(f"{market.url}/jobs/{market.job}")
    shown.get_by_role("button", name="Download the parameters").click()
    expect(shown.locator("#steered")).to_contain_text("Authorization: Bearer")
    context.close()


@FULL
def test_a_finished_job_offers_its_parameters_and_nothing_to_steer(market: Watched, browser: Browser) -> None:
    with page(browser) as shown:
        shown.goto(f"{market.url}/jobs/{market.job}#token={market.token}")
        expect(shown.locator(".state")).to_have_text("finished")
        assert shown.url.endswith(market.job), "the address does not keep the token"
        expect(shown.get_by_text("nothing is left to steer")).to_be_visible()
        for name in ("Pause", "Resume", "Fund", "Cancel"):
            expect(shown.get_by_role("button", name=name)).to_be_hidden()
        with shown.expect_download() as saved:
            shown.get_by_role("button", name="Download the parameters").click()
        headers = {"Authorization": f"Bearer {market.token}"}
        parameters = httpx.get(f"{market.url}/v1/jobs/{market.job}/parameters", headers=headers).content
        assert saved.value.path().read_bytes() == parameters


@FULL
def test_jobs_are_looked_for_while_the_viewer_types(market: Watched, browser: Browser) -> None:
    with page(browser) as shown:
        shown.goto(market.url)
        expect(shown.get_by_role("link", name=NAME)).to_be_visible()
        shown.get_by_label("Search").fill("no such job")
        expect(shown.get_by_text("No job is like that.")).to_be_visible()
        assert shown.url == f"{market.url}/?q=no+such+job"
        shown.get_by_label("Search").fill("DIGITS")
        shown.get_by_label("mine").check()
        expect(shown.get_by_text("Enter the API token that posted your jobs.")).to_be_visible()
        shown.locator("[name=token]").fill(market.token)
        shown.get_by_role("button", name="Use it").click()
        expect(shown.get_by_role("link", name=NAME)).to_be_visible()
        expect(shown.locator("#whose")).to_be_hidden()


@FULL
def test_the_operator_sees_its_service_and_others_do_not(market: Watched, browser: Browser) -> None:
    assert httpx.get(f"{market.url}/page/operator").status_code == 401
    with page(browser) as shown:
        shown.goto(f"{market.url}/operator")
        expect(shown.locator("#now")).to_contain_text("No token yet")
        shown.locator("[name=token]").fill(market.token)
        shown.get_by_role("button", name="Use it").click()
        expect(shown.locator("#now")).to_contain_text("Chain sender")


def test_an_absent_page_is_a_404_in_html(market: Watched) -> None:
    for path in ("/jobs/none", f"/jobs/{market.job}/tasks/none", "/workers/0x" + "00" * 20, "/workers/bad"):
        answer = httpx.get(market.url + path)
        assert answer.status_code == 404
        assert answer.headers["content-type"].startswith("text/html")
