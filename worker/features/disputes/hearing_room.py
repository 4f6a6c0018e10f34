"""The referee's side of a hearing: sides fetch the question and bring answers, a thread waits and computes."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from eth_keys.datatypes import PrivateKey
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gradmarket.market.errors import Refused
from gradmarket.market.features.disputes.hearing import Judge, Redo, compute_decision
from gradmarket.market.features.disputes.questions import NO_RUN, DisputeReceipt, Reply, digest_reply
from gradmarket.market.features.disputes.referee import DisputeVerdict, Referee
from gradmarket.market.signing import address_of, digest_struct, sign_digest
from gradmarket.market.terms import Address
from gradmarket.market.wire.hearing_messages import HearingReceipt, SaidHeaders, SignedRuling, build_ruling
from worker.features.disputes.hearing_client import ANSWERS, PATH, WAIT_S, HeardDispute


class HearingRoom:
    """One dispute about an offer of this job of the chain, whose sides ask and answer by requests; `clock` in Unix
    seconds. Thread-safe.

    Only a side's answer is read: the signature comes before, in the headers.
    """

    def __init__(self, referee: Referee, job: int, key: PrivateKey, clock: Callable[[], int]) -> None:
        self._referee, self._job, self._key, self._clock = referee, job, key, clock
        self._changed = threading.Condition()
        self._waiting = set[Callable[[], object]]()
        """Each wakes a request that waits for the next question; none of them holds a thread."""
        self._told = set[Address]()
        self._bringing = set[Address]()

    def read_state(self, side: str = "") -> HeardDispute:
        """Returns the open question, or the ruling, which `side` has then received."""
        referee = self._referee
        with self._changed:
            if referee.verdict is not None and side in referee.terms.sides:
                self._told.add(Address(side))
                self._changed.notify_all()
            asked = referee.open_question
            return HeardDispute(
                referee=address_of(self._key),
                offer=referee.terms.offer,
                sides=referee.terms.sides,
                roots=referee.terms.roots,
                number=asked.number,
                asked=referee.question.asked,
                level=referee.question.level,
                place=referee.question.place,
                until=asked.until,
                signature=sign_digest(self._key, digest_struct(referee.terms.domain, asked)),
                ruling=None if referee.verdict is None else self._sign_ruling(referee.verdict),
            )

    def _sign_ruling(self, verdict: DisputeVerdict) -> SignedRuling:
        terms, why = self._referee.terms, verdict.why[:2000]
        struct = build_ruling(terms.dispute, terms.sides, verdict.wrong, verdict.leaf, why)
        signature = sign_digest(self._key, digest_struct(terms.domain, struct))
        return SignedRuling(wrong=tuple(sorted(verdict.wrong)), leaf=verdict.leaf, why=why, signature=signature)

    def admit(self, headers: SaidHeaders, length: int) -> None:
        """Raises Refused unless a side signed an answer of the open question, of a length that can hold."""
        with self._changed:
            self._referee.check_signed(headers.side, headers.number, headers.said, headers.signature)
            if length > self._referee.most_bytes:
                self._referee.record_oversized(headers.side, self._clock())
                self._announce()
                raise Refused(f"an answer to this question has at most {self._referee.most_bytes} bytes")
            if headers.side in self._bringing:
                raise Refused("this side is bringing an answer already")
            self._bringing.add(headers.side)

    def leave(self, headers: SaidHeaders) -> None:
        """Ends the reading that `admit` began."""
        with self._changed:
            self._bringing.discard(headers.side)

    def receive(self, reply: Reply) -> HearingReceipt:
        """Receives a whole answer, and acknowledges it. Raises Refused as Referee.receive does."""
        terms = self._referee.terms
        with self._changed:
            self._referee.receive(reply, at := self._clock())
            self._announce()
        said = digest_reply(reply.said)
        struct = DisputeReceipt(self._job, terms.dispute, NO_RUN, reply.side, reply.number, said, at)
        signature = sign_digest(self._key, digest_struct(terms.domain, struct))
        return HearingReceipt(number=reply.number, at=at, signature=signature)

    def hold(self, redo: Redo, judge: Judge | None = None) -> SignedRuling:
        """Waits for answers until each one's time is over, computes the one operation, and returns the ruling.

        Sides ask on while it computes: both have answered, so nothing changes meanwhile.
        """
        while (verdict := self._referee.verdict) is None:
            if (leaf := self._wait_for_operation()) is not None:
                decide = compute_decision(self._referee, leaf, redo, judge)
                with self._changed:
                    decide()
                    self._announce()
        with self._changed:
            self._announce()
        return self._sign_ruling(verdict)

    def _wait_for_operation(self) -> int | None:
        """Returns the one operation once it is due, or None once a verdict without it exists."""
        referee = self._referee
        with self._changed:
            while referee.verdict is None and referee.operation is None:
                if (left := min(referee.find_ends().values()) - self._clock()) < 0:
                    referee.expire(self._clock())
                else:
                    self._changed.wait(left + 1)
            return referee.operation

    def _announce(self) -> None:
        self._changed.notify_all()
        for wake in tuple(self._waiting):
            wake()

    def wait_until_ruling_fetched(self, wait_s: float) -> None:
        """Waits, at most `wait_s`, until every side that answered has fetched the ruling."""
        with self._changed:
            self._changed.wait_for(lambda: self._told == set(self._referee.terms.sides), wait_s)

    def app(self) -> Starlette:
        """Returns the app that serves it."""
        return Starlette(
            routes=[Route(PATH, self._serve_question), Route(ANSWERS, self._take_answer, methods=["POST"])]
        )

    async def _serve_question(self, request: Request) -> Response:
        try:
            after = int(request.query_params.get("after", -1))
            wait_s = min(WAIT_S, max(0.0, float(request.query_params.get("wait_s", 0.0))))
        except ValueError:
            return _refuse("`after` and `wait_s` are numbers")
        await self._wait_for_later(after, wait_s)
        heard = await run_in_threadpool(self.read_state, request.query_params.get("side", ""))
        return JSONResponse(heard.model_dump(mode="json"))

    async def _wait_for_later(self, after: int, wait_s: float) -> None:
        """Waits for a later question than `after`, or the ruling, at most `wait_s`."""
        referee, news = self._referee, asyncio.Event()
        wake = partial(asyncio.get_running_loop().call_soon_threadsafe, news.set)
        self._waiting.add(wake)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    while referee.verdict is None and referee.open_question.number <= after:
                        await news.wait()
                        news.clear()
        finally:
            self._waiting.discard(wake)

    async def _take_answer(self, request: Request) -> Response:
        try:
            fields = {name: request.headers.get(f"dispute-{name}", "") for name in SaidHeaders.model_fields}
            headers = SaidHeaders.model_validate(fields)
            length = int(request.headers.get("content-length", "-1"))
        except (ValidationError, ValueError):
            return _refuse("an answer has the headers dispute-side, -number, -said, -signature and content-length")
        try:
            await run_in_threadpool(self.admit, headers, length if length >= 0 else 2**63)
        except Refused as error:
            return _refuse(error.detail)
        try:
            body = bytearray()
            async with asyncio.timeout(self._left_s(headers.side)):
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > length:
                        return _refuse("the answer is longer than its content-length")
            reply = Reply(headers.side, headers.number, bytes(body), headers.signature)
            receipt = await run_in_threadpool(self.receive, reply)
        except TimeoutError:
            return _refuse("the answer is late")
        except Refused as error:
            return _refuse(error.detail)
        finally:
            self.leave(headers)
        return JSONResponse(receipt.model_dump(mode="json"))

    def _left_s(self, side: Address) -> float:
        with self._changed:
            end = self._referee.find_ends().get(side, self._clock())
        return max(1.0, float(end - self._clock() + 1))


def _refuse(why: str) -> Response:
    return JSONResponse({"title": "Refused", "status": 400, "detail": why}, status_code=400)
