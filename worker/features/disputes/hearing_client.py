"""A side's requests to a referee, until it rules.

An answer's bytes are sent unchanged, with signed headers.
"""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Final

from gradmarket.client.client_errors import ServiceProblem
from gradmarket.client.transport import BUSY, Patience, ServiceTransport
from gradmarket.market.errors import MarketError
from gradmarket.market.features.disputes.careful_side import CarefulSide, PutQuestion
from gradmarket.market.features.disputes.questions import Reply, digest_reply
from gradmarket.market.fields import AddressField, HashField
from gradmarket.market.signing import check_struct_signature
from gradmarket.market.wire.hearing_messages import HearingReceipt, PutInHearing, SaidHeaders, SignedRuling
from worker import Untrusted

PATH: Final = "/v1/dispute"
ANSWERS: Final = "/v1/dispute/answers"
WAIT_S: Final = 20.0
"""The longest time that a side's request waits for the next question."""


class HeardDispute(PutInHearing):
    """A referee's response: the sides and their dispute, and the open question or the ruling."""

    referee: AddressField
    offer: HashField
    ruling: SignedRuling | None = None


def connect_to_referee(url: str, keep_trying: Callable[[float], bool]) -> ServiceTransport:
    """Returns a connection that repeats requests on 503, a busy referee's answer: silence loses."""
    return ServiceTransport(url, Patience(keep_trying, busy=BUSY))


def answer_until_ruled(referee: ServiceTransport, side: CarefulSide, say: Callable[[str], None]) -> SignedRuling:
    """Answers each question and returns the ruling, which it checks.

    Raises Untrusted where the ruling is not signed by the referee, Refused as CarefulSide does, ServiceProblem where an
    answer is not taken, and ServiceUnreachable.
    """
    while True:
        heard = ask_referee(referee, side.last, side.side.address)
        if heard.ruling is not None:
            struct = heard.ruling.struct(side.name_dispute(heard.sides, heard.roots), heard.sides)
            try:
                check_struct_signature(side.domain, struct, heard.ruling.signature, side.referee)
            except MarketError as error:
                raise Untrusted(f"the ruling is not the referee's: {error}") from error
            return heard.ruling
        if heard.number > side.last:
            say(f"question {heard.number}: {heard.asked} {heard.level} {heard.place}")
            reply = side.answer(PutQuestion.read(heard))
            try:
                _bring(referee, reply)
            except ServiceProblem:
                now = ask_referee(referee, side.last, side.side.address, wait_s=0.0)
                if now.ruling is None and now.number == heard.number:
                    raise  # the question is open still; else the other side lost while this one computed


def ask_referee(referee: ServiceTransport, after: int = -1, side: str = "", wait_s: float = WAIT_S) -> HeardDispute:
    asked = {"after": after, "wait_s": wait_s, "side": side}
    return referee.ask(HeardDispute, "GET", PATH, params=asked, waits=wait_s)


def _bring(referee: ServiceTransport, reply: Reply) -> None:
    reply_headers = SaidHeaders(
        side=reply.side, number=reply.number, said=digest_reply(reply.said), signature=reply.signature
    ).model_dump(mode="json")
    headers = {f"dispute-{name}": str(value) for name, value in reply_headers.items()}
    headers["content-length"] = str(len(reply.said))
    referee.ask(HearingReceipt, "POST", ANSWERS, headers=headers, content=lambda: nullcontext(reply.said))
