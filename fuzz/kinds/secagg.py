"""Messages of a secure aggregation, to the requester and to a holder: the first byte names which, the rest is JSON."""

import json
from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any, Final

from pydantic import ValidationError

from fuzz.case import Case
from fuzz.values import changed, dumped, misspelt
from gradmarket.market.errors import Refused
from gradmarket.market.features.secure_sums import collector, holder
from gradmarket.market.features.secure_sums.sum_messages import StepTold, SurvivorsProposed, parse_step_message
from tests.kit.aggregation_play import DOMAIN, STEPS, AggregationPlay, Played

REFUSED: Final = Refused
_PLAY: Final = AggregationPlay(5, 8, 100, 1, 1, seed=3)
_LIAR: Final = 2
"""The holder that sends and reads changed messages."""
_TOLD: Final = ("keys", "shares", "survivors", "unmask")


def case(chance: Random) -> Case:
    which = chance.randrange(STEPS + len(_TOLD))
    whole = json.loads(_honest(which))
    draw = chance.random()
    if draw < 0.25:
        return Case(bytes([which]) + dumped(whole))
    data = dumped(changed(whole, chance)) if draw < 0.75 else misspelt(dumped(whole), chance)
    return Case(bytes([which]) + data)


def read(case: Case) -> Any:
    which, data = case.data[0], case.data[1:]
    if which < STEPS:
        return _to_requester(which + 1, data)
    return _to_holder(which - STEPS, data)


def _to_requester(step: int, data: bytes) -> Any:
    message, before = parse_step_message(step, data), _before(step)
    terms, sets = before.terms, (before.sharers, before.survivors)
    checks: dict[int, Callable[[], object]] = {
        1: lambda: collector.admit_keys(terms, DOMAIN, _others(before.keys), message),
        2: lambda: collector.admit_shares(terms, before.keys, message),
        3: lambda: collector.admit_masked(terms, DOMAIN, _play_messages().key_list, sets[0], message, _vector()),
        4: lambda: collector.admit_signature(terms, DOMAIN, *sets, message),
        5: lambda: collector.admit_answer(terms, sets[1], before.shares, message),
    }
    checks[step]()
    signed = step in (1, 3, 4)
    honest = parse_step_message(step, _honest(step - 1))
    assert not signed or message.signature == honest.signature, "a signature that its holder did not make"
    return message


def _to_holder(place: int, data: bytes) -> Any:
    name = _TOLD[place]
    try:
        reply = StepTold.model_validate_json(b'{"attempt": 0, "step": 1, "%s": %s}' % (name.encode(), data))
    except ValidationError as error:
        raise Refused(str(error)[:200]) from error
    found, state = getattr(reply, name), _before(place + 2).states[_LIAR]
    if found is None:
        raise Refused("nothing is told")
    steps = (
        holder.share_secrets,
        lambda *said: holder.mask_integers(*said, _PLAY.integers[_LIAR]),
        holder.sign_survivors,
        holder.reveal_mask_shares,
    )
    return steps[place](state, found)


def _others(keys: Any) -> dict[int, Any]:
    return {number: message for number, message in keys.items() if number != _LIAR}


@cache
def _before(step: int) -> Played:
    """Returns the round with the step open and its own messages there, for these are changed."""
    played = Played(_PLAY).to(step - 1)
    if step == 4:
        played.survivors = collector.pack_survivors(played.terms, played.sharers, played.masked)
    if step == 3:
        played.sharers, _ = collector.shares_for_holders(played.terms, played.shares)
    return played


@cache
def _play_messages() -> Played:
    return Played(_PLAY).to(STEPS)


@cache
def _vector() -> bytes:
    return _masked()[1]


@cache
def _masked() -> Any:
    played = Played(_PLAY).to(2)
    _, replies = collector.shares_for_holders(played.terms, played.shares)
    return holder.mask_integers(played.states[_LIAR], replies[_LIAR], _PLAY.integers[_LIAR])[1:]


@cache
def _honest(which: int) -> bytes:
    """Returns the JSON of the liar's message of a step, or of the one it gets after a step."""
    whole = _play_messages()
    if which < STEPS:
        messages = (whole.keys, whole.shares, whole.masked, whole.signatures, whole.answers)[which]
        return bytes(messages[_LIAR].model_dump_json().encode())
    terms = whole.terms
    reply = (
        lambda: collector.neighbour_keys(terms, whole.keys)[_LIAR],
        lambda: collector.shares_for_holders(terms, whole.shares)[1][_LIAR],
        lambda: SurvivorsProposed(survivors=whole.survivors),
        lambda: collector.unmask_requests(terms, whole.survivors, whole.signatures, whole.masked)[_LIAR],
    )[which - STEPS]()
    return bytes(reply.model_dump_json().encode())
