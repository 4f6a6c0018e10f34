"""`gradmarket wallet dispute …`: two answers to one task, heard by a referee that computes one operation of it."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer
from eth_keys.datatypes import PrivateKey

from gradmarket.client.client_errors import ServiceProblem, ServiceUnreachable
from gradmarket.client.transport import keep_trying_for
from gradmarket.market.errors import Refused
from gradmarket.market.features.disputes.careful_side import CarefulSide
from gradmarket.market.features.disputes.hearing import Judge, Redo
from gradmarket.market.features.disputes.referee import Referee, Terms
from gradmarket.market.features.disputes.side import Side
from gradmarket.market.signing import checksum_address, parse_typed_address, signer_of
from gradmarket.market.terms import Address, Hash, JobId
from gradmarket.market.wire.hearing_messages import SignedRuling
from gradmarket.market.wire.poll import digest_of, hash_of
from gradmarket.network.environment import is_address
from gradmarket.network.thread_server import serve_in_thread
from gradmarket.runner.features.disputes.traced_course import TracedCourse
from gradmarket.user_files import check_writable
from worker import wallet
from worker.features.disputes.disputed_task import DisputedTask, fetch_disputed_task
from worker.features.disputes.hearing_client import answer_until_ruled, ask_referee, connect_to_referee
from worker.features.disputes.hearing_room import HearingRoom
from worker.features.disputes.own_hearings import open_course
from worker.journal import Journal
from worker.money.chain_view import ledger_of
from worker.options import (
    DataOption,
    JsonOption,
    MarketOption,
    PassphraseOption,
    RpcOption,
    add_wallet_passphrase,
    settings_of,
)
from worker.protocol.client import COMMAND_WAIT_S, Credentials, MarketClient
from worker.protocol.policy import memory_of
from worker.settings import WorkerSettings
from worker.wallet import Wallet

ANSWER_S: Final = 900
"""Seconds for an answer: the first and the last have the task traced, which takes longer than its step."""
TOLD_S: Final = 60.0
"""Seconds for which the ruling is served to sides that have not fetched it."""
PORT: Final = 8790
SHARE: Final = 4
"""An operation's values take at most this part of a step's memory."""
app = typer.Typer(no_args_is_help=True, help="Two answers to one task: who of both is wrong, by one operation of it.")

JobArgument = Annotated[str, typer.Argument(help="The job's id at the market.")]
TaskArgument = Annotated[str, typer.Argument(help="The task's id.")]


@dataclass(frozen=True)
class _Opened:
    settings: WorkerSettings
    key: Wallet
    market: MarketClient
    task: DisputedTask


@contextmanager
def _open_task(settings: WorkerSettings, job: str, task: str, new_key: bool = False) -> Iterator[_Opened]:
    """`new_key`: where the folder has no wallet, a key that is made for this hearing and then discarded."""
    if new_key and wallet.find_key_file(settings.data) is None:
        key = wallet.Wallet(PrivateKey(os.urandom(32)), settings.data)
    else:
        settings = add_wallet_passphrase(settings)
        key = wallet.load_wallet(settings.data, settings.secret)
    market = MarketClient(str(settings.market).rstrip("/"), keep_trying_for(COMMAND_WAIT_S))
    try:
        facts = market.facts()
        market.identify(Credentials(key, key.address, facts.chain_id))
        ledger = ledger_of(settings.node, facts, str(settings.market))
        yield _Opened(settings, key, market, fetch_disputed_task(market, ledger, key.address, JobId(job), task))
    finally:
        market.close()


def _open_course(settings: WorkerSettings, opened: _Opened) -> AbstractContextManager[TracedCourse]:
    disputed = opened.task
    return open_course(settings, opened.market, disputed.publication, disputed.offer, disputed.classes.values())


@app.command("judge")
def judge_command(
    job: JobArgument,
    task: TaskArgument,
    side: Annotated[
        list[str] | None,
        typer.Option(
            help="A side's address, twice: a worker's or a panel auditor's; another one stands for the audit's answer."
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address of this machine to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: a free one.")] = PORT,
    answer_s: Annotated[
        int, typer.Option(min=1, max=86_400, help="Seconds for each answer; silence loses.")
    ] = ANSWER_S,
    to: Annotated[Path | None, typer.Option(help="File for the signed ruling, as JSON.")] = None,
    market: MarketOption = None,
    rpc: RpcOption = None,
    data: DataOption = None,
    passphrase_file: PassphraseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Hear both sides of a task until they part at one operation, compute that alone, and sign who is wrong.

    Sides of two determinism classes are each judged by a bound on that operation's rounding, where it has one.
    Ends with 1 where no side is: it could not tell.
    """
    journal = Journal(as_json)
    if to is not None:
        check_writable(to)
    settings = settings_of(market=market, rpc=rpc, data=data, passphrase_file=passphrase_file)
    with _open_task(settings, job, task, new_key=True) as opened, _open_course(settings, opened) as course:
        named, disputed = [parse_typed_address(each) for each in side or ()], opened.task
        sides = disputed.choose_sides(named)
        if opened.key.address in sides:
            raise Refused("a side is no referee of its own dispute", "take another wallet with --data")
        across = disputed.is_across(sides)
        if not across:
            disputed.check_class(course.runner.determinism_class(), sides)
        roots = hash_of(disputed.root_of(sides[0])), hash_of(disputed.root_of(sides[1]))
        most = memory_of(settings) // SHARE
        terms = Terms(disputed.domain, disputed.name, sides, roots, answer_s, most, across)
        referee, job_number = Referee(terms, course, int(time.time())), disputed.offer.job
        room = HearingRoom(referee, job_number, opened.key.key, lambda: int(time.time()))
        with serve_in_thread(room.app(), host, port) as url:
            text = (
                f"Hearing {sides[0]} and {sides[1]} at {url}: `gradmarket wallet dispute answer {job} {task} --referee`"
            )
            if wallet.find_key_file(settings.data) is None:
                key = opened.key.address
                journal.report("key", f"No wallet is in {settings.data}: {key}, made now, signs this ruling.", key=key)
            journal.report("hearing", text, url=url, sides=list(sides), referee=opened.key.address)
            ruling = hold_hearing(room, course.redo, course.judge, journal)
            if to is not None:
                heard = room.read_state().model_dump(mode="json")
                to.write_text(json.dumps({"job": job, "task": task, **heard}, indent=2) + "\n")
            room.wait_until_ruling_fetched(TOLD_S)
    raise typer.Exit(0 if ruling.wrong else 1)


def hold_hearing(room: HearingRoom, redo: Redo, judge: Judge | None, journal: Journal) -> SignedRuling:
    """Hears both sides to the end, and shows the ruling to the referee's owner."""
    ruling = room.hold(redo, judge)
    _report_ruling(journal, ruling)
    return ruling


@app.command("answer")
def answer_command(
    job: JobArgument,
    task: TaskArgument,
    referee: Annotated[str, typer.Option(help="Address at which the referee listens.")],
    referee_key: Annotated[
        str | None, typer.Option(help="The referee's address on the chain; else the one that it says it has.")
    ] = None,
    market: MarketOption = None,
    rpc: RpcOption = None,
    data: DataOption = None,
    passphrase_file: PassphraseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Stand by this machine's answer to a task: compute it again, commit to every operation, answer the referee.

    Ends with 1 where it loses.
    """
    journal = Journal(as_json)
    settings = settings_of(market=market, rpc=rpc, data=data, passphrase_file=passphrase_file)
    named = _find_referee(referee, referee_key)
    with _open_task(settings, job, task) as opened, _open_course(settings, opened) as course:
        disputed, me = opened.task, opened.key.address
        disputed.check_class(course.runner.determinism_class(), [me])
        trace, root = course.runner.trace(course.inputs), hash_of(disputed.root_of(me))
        if trace.root != root:
            here = f"here the task comes out as {digest_of(Hash(trace.root))}, and {disputed.root_of(me)} was answered"
            raise Refused(f"{here}: there is nothing to defend", "answer on the machine that gave the answer")
        transport = connect_to_referee(referee, keep_trying_for(ANSWER_S))
        try:
            own = Side(me, signer_of(opened.key.key), trace.checkpoints, course.detail, course.show, course.results)
            side = CarefulSide(disputed.domain, disputed.name, root, own, course, named)
            ruling = answer_until_ruled(transport, side, lambda text: journal.report("asked", text))
        finally:
            transport.close()
        _report_ruling(journal, ruling)
    raise typer.Exit(1 if me in ruling.wrong else 0)


def _find_referee(url: str, key: str | None) -> Address:
    """Returns the referee's address on the chain, before the task is traced. Raises Refused where none answers."""
    if not is_address(url):
        raise Refused(f"{url[:200]!r} is not the address of a referee", "write it like http://192.0.2.1:8790")
    transport = connect_to_referee(url, keep_trying_for(COMMAND_WAIT_S))
    try:
        heard = checksum_address(ask_referee(transport, wait_s=0.0).referee)
    except (ServiceUnreachable, ServiceProblem) as error:
        raise Refused(f"no referee answers at {url}: {error}", "ask for its address, and whether it hears") from None
    finally:
        transport.close()
    if key is not None and heard.lower() != key.lower():
        raise Refused(f"the referee at {url} is {heard}, and not {key[:80]}", "ask whom you trust for --referee-key")
    return heard


def _report_ruling(journal: Journal, ruling: SignedRuling) -> None:
    wrong = " and ".join(ruling.wrong)
    text = f"{wrong} is wrong: {ruling.why}." if wrong else f"Nobody is found wrong: {ruling.why}."
    where = "" if ruling.leaf is None else f" They part at operation {ruling.leaf}."
    journal.report("ruled", text + where, wrong=list(ruling.wrong), leaf=ruling.leaf, why=ruling.why)
