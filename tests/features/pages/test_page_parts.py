"""The parts of the web page that need no browser: texts, the form, the plan, vendored files."""

import hashlib
import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gradmarket.market.errors import NotFound
from gradmarket.market.features.private.holder_budget import HolderBudget
from gradmarket.market.features.private.row_budget import compute_spent_epsilon, count_affordable_uses
from gradmarket.market.job import JobSpec
from gradmarket.market.job_parts import Privacy
from gradmarket.market.money import TokenUnit, in_smallest
from gradmarket.market.rules.lifecycle import DIVERGED, ESCROW_SHORT
from gradmarket.market.step import RowPrivacy
from gradmarket.market.terms import JobState
from gradmarket.market.views.job_views import RowPrivacyView
from gradmarket.pages import ASSETS, format_bytes, format_duration, format_utc_time, shorten_text
from requester.api.job_views import read_standing
from requester.features import pages
from requester.features.pages import job_form, job_page
from requester.features.pages.measured import PageMeasures
from requester.features.pages.page_route import render_template
from requester.features.pages.sentences import KINDS, build_sentence
from requester.features.pages.story_page import build_story_page
from requester.features.private import row_privacy_view
from requester.store import jobs
from requester.store.tables import Job
from requester.store.work import RowReader
from tests.features.private.test_private_jobs import holder, listed
from tests.features.private.test_worth_pay import open_worth_market
from tests.lanes import FULL
from tests.requester.market_fixture import MarketFixture

TOKEN = TokenUnit("GRAD", 18)
EXAMPLE = job_form.EXAMPLE % TOKEN.symbol
TEMPLATES = Path(pages.__file__).parent / "templates"
PRIVACY = {"noise_multiplier": 4.0, "epsilon": 8.0, "delta": 1e-5}


@pytest.mark.parametrize("template", sorted(TEMPLATES.glob("*.html")), ids=lambda path: path.stem)
def test_a_table_scrolls_by_itself_on_a_narrow_screen(template: Path) -> None:
    text = template.read_text()
    within = re.findall(r'<div class="scroll" tabindex="0" role="region" aria-label="[^"]+">\s*<table', text)
    assert len(within) == text.count("<table")


def test_an_event_is_a_sentence_with_its_fields() -> None:
    assert (
        build_sentence("round_closed", {"round": 3, "loss": 0.123456}).text == "Round 3 closed; training loss 0.1235."
    )
    assert build_sentence("accepted", {"round": 1, "paid": ["0x1", "0x2"]}).text.endswith("workers paid: 2.")


def test_an_unknown_event_and_missing_fields_are_shown_all_the_same() -> None:
    assert build_sentence("brand_new", {}).text == "Brand new."
    for kind in KINDS:
        assert build_sentence(kind, {}).text


@given(st.dictionaries(st.text(max_size=10), st.text(max_size=2000), max_size=5))
def test_hostile_fields_of_an_event_neither_fail_nor_flood_the_page(body: dict[str, Any]) -> None:
    assert len(build_sentence("rejected", body | {"reason": "{0.__class__}" * 500}).text) < 400


def test_values_are_escaped() -> None:
    page = render_template("", "plan.html", estimate=None, faults=[("<script>", '"><img src=x onerror=alert(1)>')])
    assert "<script>" not in page
    assert "<img" not in page


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "—"), (0.2, "0 s"), (59.0, "59 s"), (90.0, "1.5 min"), (7200.0, "2 h"), (2e5, "2.31 d")],
)
def test_durations_in_words(seconds: float | None, text: str) -> None:
    assert format_duration(seconds) == text


def test_ids_times_and_bytes_are_short() -> None:
    assert shorten_text("0x4383a72aC7FC6eB16b0E4613948BE679AF7760cC") == "0x4383a…60cC"
    assert shorten_text("short") == "short"
    assert format_utc_time(0.0) == "1970-01-01T00:00:00Z"
    assert format_bytes(1_500_000) == "1.5 MB"


def test_the_form_has_every_field_of_a_job() -> None:
    shown = {field.name for field in job_form.list_form_fields()}
    assert shown | job_form.LEFT_OUT == set(JobSpec.model_fields)
    helps = [one.help for field in job_form.list_form_fields() for one in (field, *field.fields)]
    assert any(text.startswith("Rows computed at once; empty for all, or") for text in helps)
    assert not any("null" in text for text in helps), "nobody writes null into a form"
    fields = {one.path: one for field in job_form.list_form_fields() for one in (field, *field.fields)}
    assert (fields["rounds"].kind, fields["rounds"].required) == ("integer", True)
    assert fields["rounds"].help == "Number of the job's rounds."
    assert fields["model.architecture"].choices == ("cnn", "gpt", "mlp")
    assert "adamw" in fields["optimizer.name"].choices
    assert (fields["step.rows"].required, fields["step.rows"].example) == (True, "32")
    assert {field.kind for path, field in fields.items() if path in job_form.AMOUNTS} == {"amount"}
    unexplained = [one.path for one in fields.values() if not (one.help or one.choices or one.kind == "amount")]
    assert not unexplained


def test_the_example_is_a_job_and_its_plan_has_the_highest_cost() -> None:
    spec = JobSpec.model_validate(in_smallest(json.loads(EXAMPLE), lambda: TOKEN))
    shown = job_form.estimate_cost(spec, TOKEN)
    assert shown.cost == TOKEN.text(spec.most_expensive)
    assert shown.gradients == spec.rounds * spec.replication.max_replicas


def test_a_wrong_job_is_refused_by_its_fields() -> None:
    given = {**json.loads(EXAMPLE), "price": "1", "rounds": 0, "colour": "red", "step": {"rows": 0}, "staleness": 1}
    with pytest.raises(ValidationError) as refused:
        JobSpec.model_validate(given)
    faults = dict(job_form.list_faults(refused.value, given))
    assert faults.keys() == {"rounds", "colour", "step.rows"}
    assert "no such field" in faults["colour"]


def test_vendored_files_are_those_that_are_named_with_their_licences() -> None:
    named = json.loads((ASSETS / "vendored.json").read_text())
    for one in named:
        assert hashlib.sha256((ASSETS / one["file"]).read_bytes()).hexdigest() == one["sha256"]
        assert (ASSETS / one["license_file"]).read_text()
    own = {
        "amount.js",
        "curve.js",
        "docs.js",
        "live.js",
        "market.js",
        "proof.js",
        "runs.js",
        "steer.js",
        "submit.js",
        "token.js",
        "wallet.js",
    }
    scripts = {str(path.relative_to(ASSETS)) for path in ASSETS.rglob("*.js")}
    assert scripts - own == {one["file"] for one in named if one["file"].endswith(".js")}


def test_a_task_s_story_prices_it_in_the_token(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    with market.context.begin() as work:
        work.get_one(Job, market.job).unit = str(10**17)
    with market.context.reading() as reader:
        story = build_story_page(market.context, reader, market.job, market.task().id)
    assert story.price == "1 TEST"
    with market.context.reading() as reader, pytest.raises(NotFound, match="no task nil in job"):
        build_story_page(market.context, reader, market.job, "nil")


@FULL
def test_a_private_job_s_page_shows_the_epsilon_spent(new_market) -> None:  # type: ignore[no-untyped-def]
    spent = HolderBudget(Privacy.model_validate(PRIVACY))
    market = new_market(data=listed(2), rounds=3, tasks_per_round=2, norm_bound=100.0, privacy=PRIVACY)
    for _ in range(2):
        holder(market)
    assert _epsilon(market) == f"0 of {spent.asked.epsilon:g} at delta 1e-05, which allows {spent.rounds} rounds"
    market.until(lambda: len([row for row in market.rounds() if row.closed_at]) == 2)
    assert _epsilon(market).startswith(f"{spent.after(2):.3g} of 8")
    market.play()
    assert _epsilon(market).startswith(f"{spent.after(3):.3g} of 8")
    assert spent.after(3) > spent.after(2) > 0.0


BY_ROW = {"clip_norm": 1.0, "noise_multiplier": 4.0, "epsilon": 8.0, "delta": 1e-5}


def test_a_page_shows_the_epsilon_spent_of_one_row(new_market) -> None:  # type: ignore[no-untyped-def]
    """Holders of 16 rows, 8 a step: two rounds use each row once."""
    step = {"kind": "gradient", "rows": 8, "per_row": BY_ROW}
    market = new_market(data=listed(2, least_rows=16), rounds=3, tasks_per_round=2, norm_bound=100.0, step=step)
    asked = RowPrivacy.model_validate(BY_ROW)
    spent, uses = compute_spent_epsilon(asked, 2), count_affordable_uses(asked)
    for _ in range(2):
        holder(market)
    allowed = f"of 8 at delta 1e-05, at most, of a holder of the fewest rows; {2 * uses} rounds allowed"
    assert _epsilon(market, "row") == f"0 {allowed}"
    market.play()
    assert _epsilon(market, "row") == f"{spent:.3g} {allowed}"
    assert [row.loss for row in market.rounds()] == [None] * 3
    with market.reading() as reader:
        told = job_view_of(market, reader)
    assert (told.uses, told.spent, told.rounds) == (2, spent, 2 * uses)


def job_view_of(market: MarketFixture, reader: RowReader) -> RowPrivacyView:
    job = reader.get_one(Job, market.job)
    found = row_privacy_view(jobs.load_spec(job), len(market.rounds()))
    assert found is not None
    return found


def test_an_open_job_s_page_has_no_epsilon_and_one_paid_by_worth_its_ceiling(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market()
    assert "Epsilon" not in _shown(market)
    assert "by worth" not in _shown(market)
    assert "to 0.000000000000001004 TEST by worth" in _shown(open_worth_market(new_market, 2))


def test_a_finished_job_s_page_has_the_refund_and_no_expected_pay(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(rounds=1)
    assert "Comes back if it ended now" in _shown(market)
    for _ in range(3):
        market.worker()
    market.play()
    with market.context.begin() as work:
        work.get_one(Job, market.job).refunded = 7
    figures = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", _shown(market)))
    told = [
        figures[name]
        for name in ("Deposited", "Paid to workers", "Set aside for workers", "Came back", "Still comes back")
    ]
    deposited, *parts = (int(Decimal(amount.split()[0]) * 10**18) for amount in told)
    assert deposited == sum(parts)
    assert parts[2] == 7 * int(_unit(market))
    assert not {"Expected pay an hour", "Comes back if it ended now"} & figures.keys()


def test_a_job_that_its_metric_stopped_has_all_rounds_that_it_needed(new_market) -> None:  # type: ignore[no-untyped-def]
    market = new_market(rounds=4)
    assert '<progress max="4" value="0"' in _shown(market)
    for _ in range(3):
        market.worker()
    market.until(lambda: len([row for row in market.rounds() if row.closed_at]) == 2)
    with market.context.begin() as work:
        job = work.get_one(Job, market.job)
        job.state, job.ended_at = JobState.FINISHED, market.clock()
    shown = _shown(market)
    assert '<progress max="2" value="2"' in shown
    assert "<b>2</b> of 4 planned rounds were needed" in shown


@pytest.mark.parametrize(
    ("state", "reason", "steps", "main"),
    [
        (JobState.RUNNING, "", "pause fund cancel download", ""),
        (JobState.AWAITING_FUNDS, "", "fund cancel download", "fund"),
        (JobState.PAUSED, "paused by its requester", "resume fund cancel download", "resume"),
        (JobState.PAUSED, f"{ESCROW_SHORT}: fund the job", "fund cancel download", "fund"),
        (JobState.PAUSED, f"{DIVERGED} in round 1", "fund cancel download", "cancel"),
        (JobState.FINISHED, "", "download", "download"),
        (JobState.CANCELLED, "", "download", ""),
    ],
)
def test_only_the_steps_that_a_job_can_take_are_offered(  # type: ignore[no-untyped-def]
    new_market, state: JobState, reason: str, steps: str, main: str
) -> None:
    market = new_market()
    with market.context.begin() as work:
        job = work.get_one(Job, market.job)
        job.state, job.reason = state, reason
    assert f'data-steps="{steps}" data-main="{main}"' in _shown(market)


def _unit(market: MarketFixture) -> str:
    with market.reading() as reader:
        return reader.get_one(Job, market.job).unit


def _shown(market: MarketFixture) -> str:
    with market.reading() as reader:
        job = reader.get_one(Job, market.job)
        known = PageMeasures(read_standing(reader, job, market.clock()), "", jobs.latest_closed(reader, job.id))
        page = job_page.build_job_page(market.context, reader, job, known)
        return render_template("", "job_now.html", page=page)


def _epsilon(market: MarketFixture, whose: str = "holder") -> str:
    told = re.search(rf"Epsilon spent of one {whose}</dt><dd>(.*?)</dd>", _shown(market))
    assert told is not None
    return re.sub(r"</?small>", "", told[1])


def test_a_private_job_without_workers_shows_its_holders_command(new_market) -> None:  # type: ignore[no-untyped-def]
    private, open_to_all = new_market(data=listed(2), tasks_per_round=2), new_market()
    for market, rows in ((private, f" --dataset FOLDER --for {private.job}"), (open_to_all, "")):
        with market.reading() as reader:
            job = reader.get_one(Job, market.job)
            standing = read_standing(reader, job, market.clock())
            assert standing.reason
            shown = job_page.build_job_page(market.context, reader, job, PageMeasures(standing, "", None))
        assert shown.mend == f"gradmarket worker run --market {market.context.public_url}{rows}"


def test_a_job_that_vests_shows_what_of_the_pay_is_locked(new_market) -> None:  # type: ignore[no-untyped-def]
    vesting = {"prices": 2, "validators": ["0x" + "11" * 20], "bond": "5"}
    shown = _shown(new_market(audit={"probability": 0.5}, vesting=vesting))
    assert "of each worker&#39;s pay at most, 24 h after its last credit" in shown
    assert "its last credit" not in _shown(new_market())
