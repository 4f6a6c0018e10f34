"""Refereed disputes: this service hears answers that differ, and computes the one operation where they part."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, Final, TypeVar

from fastapi import APIRouter, HTTPException, Query, Request
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool

from gradmarket.market.errors import NotFound
from gradmarket.market.features.disputes.questions import HearingAnswer, HearingQuestions
from gradmarket.market.fields import AddressField
from gradmarket.market.wire.hearing_messages import AuditorQuestions, AuditorStatement, HearingReceipt
from gradmarket.market.wire.log_proofs import LeafKind
from requester.api.auth_routes import SAME_RELEASE, Auditor, Here, Worker
from requester.api.blob_routes import UPLOAD
from requester.api.problems import describe_problems
from requester.api.streams import consume_stream
from requester.context import Context
from requester.feature import Feature
from requester.features.disputes import hearing_exchange, hearing_rows, hearings
from requester.features.disputes.hearings import hearing_topic
from requester.features.log import leaf_rows
from requester.notifier import rung_within
from requester.store import identities
from requester.store.tables import Job, Task
from requester.store.work import RowReader, Work

router = APIRouter(prefix="/v1")

MOST_WAIT_S: Final = 20.0
LOOK_S: Final = 5.0
"""Seconds after which a waiting request looks again, should a notification be lost."""
LONGER: Final = "the answer is longer than its content-length"
HEADERS: Final = "an answer has the headers hearing-side, -number, -said, -signature, {} and content-length"
Questions = TypeVar("Questions", HearingQuestions, AuditorQuestions)
WaitQuery = Annotated[float, Query(ge=0, le=MOST_WAIT_S)]


@router.get(
    "/work/hearings",
    tags=["work"],
    operation_id="list_asked_questions",
    responses=SAME_RELEASE,
    summary="What referees of disputes ask you; waits up to wait_s for a question",
)
async def asked(context: Here, worker: Worker, wait_s: WaitQuery = 0.0) -> HearingQuestions:
    return await _wait_for_question(
        context, worker, lambda: hearing_exchange.list_asked_questions(context, worker), wait_s
    )


@router.get(
    "/audits/hearings",
    tags=["audits"],
    operation_id="list_auditor_questions",
    responses=SAME_RELEASE,
    summary="What referees ask a panel's auditor that signs with this key; waits up to wait_s for a question",
)
async def asked_auditor(
    context: Here, identity: Auditor, signer: Annotated[AddressField, Query()], wait_s: WaitQuery = 0.0
) -> AuditorQuestions:
    operator = identities.operator_of(identity.subject)
    return await _wait_for_question(
        context, signer, lambda: hearing_exchange.list_auditor_questions(context, operator, signer), wait_s
    )


async def _wait_for_question(context: Context, side: str, load: Callable[[], Questions], wait_s: float) -> Questions:
    end = context.clock() + wait_s
    with context.notifier.listen_async([hearing_topic(side)]) as notified:
        while True:
            notified.clear()
            questions = await run_in_threadpool(load)
            left = end - context.clock()
            if questions.questions or left <= 0 or context.notifier.closing:
                return questions
            await rung_within(notified, min(left, LOOK_S))


@router.post(
    "/work/hearings",
    tags=["work"],
    operation_id="answer_question",
    responses={**SAME_RELEASE, **describe_problems(404, 409, 413, 422)},
    openapi_extra=UPLOAD,
    summary="Answer a referee's question: the bytes, signed in the headers",
)
async def answer(context: Here, worker: Worker, request: Request) -> HearingReceipt:
    statement, size = _read_headers(HearingAnswer, request, "-replica")
    return await _take_answer(context, worker, statement, size, request)


@router.post(
    "/audits/hearings",
    tags=["audits"],
    operation_id="answer_as_auditor",
    responses={**SAME_RELEASE, **describe_problems(404, 409, 413, 422)},
    openapi_extra=UPLOAD,
    summary="Answer a referee's question about what a panel's auditor opened: the bytes, signed in the headers",
)
async def answer_as_auditor(context: Here, identity: Auditor, request: Request) -> HearingReceipt:
    statement, size = _read_headers(AuditorStatement, request, "-task")
    return await _take_answer(context, identities.operator_of(identity.subject), statement, size, request)


Said = TypeVar("Said", HearingAnswer, AuditorStatement)


def _read_headers(kind: type[Said], request: Request, name: str) -> tuple[Said, int]:
    fields: dict[str, Any] = {name: request.headers.get(f"hearing-{name}", "") for name in kind.model_fields}
    try:
        statement, size = kind.model_validate(fields), int(request.headers.get("content-length", "-1"))
    except (ValidationError, ValueError):
        raise HTTPException(422, HEADERS.format(name)) from None
    if not 0 <= size < 2**63:
        raise HTTPException(422, HEADERS.format(name))
    return statement, size


async def _take_answer(
    context: Context, caller: str, statement: hearing_exchange.Statement, size: int, request: Request
) -> HearingReceipt:
    try:
        door = await run_in_threadpool(hearing_exchange.admit_answer, context, caller, statement)
    except NotFound:
        if (before := await run_in_threadpool(hearing_exchange.find_receipt, context, statement)) is None:
            raise
        return before
    if size > door.most_bytes:
        if not door.may_be_longer:
            raise HTTPException(413, f"an answer to this question has at most {door.most_bytes} bytes")
        return await run_in_threadpool(hearing_exchange.store_answer, context, caller, door, statement, None, size)
    with context.blobs.receive() as incoming:
        async with request.app.state.readers.reading(f"{statement.side} {door.task}"):
            try:
                async with asyncio.timeout(max(0.0, door.until - context.clock())):
                    await consume_stream(request.stream(), size, LONGER, incoming.write)
            except TimeoutError:
                raise HTTPException(404, hearing_exchange.LATE) from None
            at = context.clock()
        with incoming.mapped() as body:
            given = context, caller, door, statement, body, size, at
            return await run_in_threadpool(hearing_exchange.store_answer, *given)


class HearingsFeature(Feature):
    name = "disputes"
    needs = ("log", "row_checks")
    stages = (hearings,)
    routers = (router,)
    log_records = (hearing_rows.HEARINGS, hearing_rows.ANSWERS, hearing_rows.RULINGS)

    @contextmanager
    def serve_beside(self, context: Context, here: str) -> Iterator[None]:
        hearings.renew_questions(context)
        yield

    def bound_times(self, work: Work, now: float) -> int:
        return hearing_rows.bound_times(work, now)

    def hear_task(self, work: Work, task: Task, now: float, run: int | None = None) -> None:
        hearing_rows.begin_dispute(work, task, now, run)
        work.notify(hearings.TOPIC)

    def audit_ended(self, work: Work, task: Task, now: float) -> None:
        hearings.record_panel_hearings(work, task, now)

    def describe_wait(self, reader: RowReader, job: Job) -> str:
        counts = zip(hearing_rows.count_open_hearings(reader, job), ("workers", "auditors"), strict=True)
        heard = [(who, "a task" if count == 1 else f"{count} tasks") for count, who in counts if count]
        return "; ".join(f"a referee hears {who} whose answers to {what} differ" for who, what in heard)

    def describe_task(self, reader: RowReader, row: Task) -> Mapping[str, object]:
        # where an audit was opened again, only logged hearings are shown
        heard = [
            each
            for each in hearing_rows.list_hearings(reader, row.id)
            if hearing_rows.is_open(reader, each.task_id, each.run)
            or leaf_rows.find_leaf(reader, each.job_id, LeafKind.HEARING, f"{each.task_id}/{each.number}") is not None
        ]
        return {"hearings": [each.publish() for each in heard]} if heard else {}
