"""Disputes that waste an honest side's time, sides that fall silent in one, and a liar of a real job before a referee.

The first two play on a small task, in this process.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from eth_keys.datatypes import PrivateKey

from gradmarket.client.client_errors import ServiceProblem
from gradmarket.market.features.disputes.careful_side import CarefulSide, PutQuestion
from gradmarket.market.features.disputes.questions import (
    DisputeAnswer,
    DisputeQuestion,
    HearingAnswer,
    HearingQuestion,
    Question,
    Reply,
    count_questions,
    count_total,
    digest_reply,
)
from gradmarket.market.features.disputes.referee import SHOWN, Referee, Terms
from gradmarket.market.features.disputes.refereed import Heard, choose_sides, find_standing_root
from gradmarket.market.features.disputes.side import Side
from gradmarket.market.messages import Offer
from gradmarket.market.signing import address_of, digest_struct, signer_of
from gradmarket.market.terms import Address, Hash, JobId
from gradmarket.market.wire.hearing_messages import PutInHearing, SignedRuling
from gradmarket.market.wire.poll import OfferFields, digest_of, hash_of
from gradmarket.runner import Runner, RunnerSettings
from gradmarket.runner.features.disputes.traced.course import PlanCourse, redo_operation
from tests.attacks.registry import Seen, attack
from tests.attacks.scene import Posted, Scene
from tests.attacks.scripted_worker import ScriptedWorker
from tests.kit.behaviour import HONEST as HONEST_WORKER
from tests.kit.behaviour import TRIPLED
from tests.kit.disputes import (
    ANSWER_S,
    DOMAIN,
    HONEST,
    LIAR,
    OFFER,
    Ask,
    Lie,
    answer_as,
    build_lie,
    hear_dispute,
    play_dispute,
    side_of,
    terms_of,
)
from tests.kit.traced import SmallTask, parse_step, small_cnn
from tests.patience import PATIENCE_S
from worker import durable, wallet
from worker.features.disputes.disputed_task import fetch_disputed_task
from worker.features.disputes.hearing_client import answer_until_ruled, ask_referee, connect_to_referee
from worker.features.disputes.own_hearings import answer_hearing, ask_hearings, open_course
from worker.protocol.client import Credentials, MarketClient
from worker.settings import WorkerSettings
from worker.wallet import Wallet

COPIES = 20
MOST_HEARD = 3
"""Hearings of four answers: each ends with a worker out."""
MOST_BROUGHT = 32 * 2**20
"""Bytes of an operation's values that a market's referee takes."""
MOST_SHOWN = 2**20
"""Bytes of values that the referee of a crowd holds."""
MOST_MESSAGES = 2**16
"""Bytes of a side's answers but for the values of one node."""
ONE_EXPORT = threading.Lock()
BOUNDED = "the griefer loses at its node; the honest side answered log2 times and ran twice, the referee did one node"
CROWDED = "in a hearing a griefer at most the honest side runs twice, and sends 64 KiB and a node: its answer stands"
SILENT = "the silent side loses, whatever the question, and the honest one is not asked twice"


def disputed() -> tuple[SmallTask, Lie]:
    with ONE_EXPORT:  # attacks are played abreast, and torch exports one model at a time
        return _build_disputed()


@cache
def _build_disputed() -> tuple[SmallTask, Lie]:
    """A task of local steps, and an answer with another gradient of one node."""
    task = small_cnn(parse_step(kind="local", steps=2, rows=4, optimizer={"name": "adamw", "lr": 0.01}))
    plan = task.operations.plan
    leaves = (leaf for leaf in range(len(plan)) if plan[leaf].kind == "call" and "backward" in plan[leaf].name)
    return task, next(lie for leaf in leaves if (lie := build_lie(task, leaf, 0, Random(1))) is not None)


def count_all(course: PlanCourse) -> int:
    return count_questions(course.parts, max(map(course.count, range(course.parts))))


@attack("dispute griefing", BOUNDED)
def a_groundless_dispute_drawn_out_to_the_last_second(_scene: Scene) -> Seen:
    """Each answer comes in the last second that its clock leaves it, after twenty that are not signed, too long or of
    another turn."""
    task, lie = disputed()
    course, terms = PlanCourse(task.operations.plan), terms_of(task, lie)
    honest, griefer = side_of(HONEST, task, task.trace), side_of(LIAR, task, lie.trace)
    referee, now, answers, runs, redone = Referee(terms, course, 0), [0], [0], [0], [0]
    answer_honestly, answer_late = answer_as(honest, course, terms), answer_as(griefer, course, terms)

    def ask_honest(asked_: DisputeQuestion, question: Question) -> Iterator[Reply]:
        answers[0] += 1
        runs[0] += question.asked in ("part", "values")
        yield from answer_honestly(asked_, question)

    def ask_griefer(asked_: DisputeQuestion, question: Question) -> Iterator[Reply]:
        now[0] = referee.find_ends()[griefer.address]
        for number in range(COPIES):
            yield Reply(griefer.address, asked_.number + number % 2, bytes(2**16), bytes(65))
            yield Reply(honest.address, asked_.number, b"", bytes(65))
        yield from answer_late(asked_, question)

    def redo(leaf: int, inputs: Sequence[bytes]) -> bytes:
        redone[0] += 1
        return redo_operation(task.operations, leaf, inputs)

    asks = {honest.address: ask_honest, griefer.address: ask_griefer}
    verdict = hear_dispute(referee, asks, redo, lambda: now[0])
    most, clock = count_all(course), count_total(ANSWER_S, across=False)
    figures = {"answers": float(answers[0]), "seconds at most": float(clock)}
    bounded = answers[0] <= most and now[0] <= clock and (runs, redone) == ([2], [1])
    if verdict.wrong != {griefer.address} or verdict.leaf != lie.leaf or not bounded:
        return Seen(f"{verdict.why}: {answers[0]} answers, {runs[0]} runs, {redone[0]} operations, {now[0]} s", figures)
    return Seen(BOUNDED, figures)


@dataclass
class _Spent:
    """Costs of the honest worker in a crowd: answers and their bytes except values, and runs of the task."""

    hearings: int = 0
    answers: int = 0
    bytes: int = 0
    runs: int = 0

    def record(self, question: Question, reply: Reply) -> None:
        shows = question.asked == "values"
        self.hearings += question.asked == "root"
        self.answers, self.bytes = self.answers + 1, self.bytes + len(reply.said) * (not shows)
        self.runs += shows or question.asked == "part"


@attack("dispute griefing", CROWDED)
def a_crowd_that_answers_as_late_and_as_big_as_it_may(_scene: Scene) -> Seen:
    """One honest worker of four, in each hearing that its market holds. Each griefer has a lie of its own, answers in
    the last second, and signs that its values are longer than anything that the referee holds."""
    task, lies = disputed()[0], _build_crowd()
    course, honest = PlanCourse(task.operations.plan), address_of(HONEST)
    traces = {honest: (HONEST, task.trace)} | {address_of(key): (key, lie.trace) for key, lie in lies.items()}
    answers = {address: digest_of(Hash(trace.root)) for address, (_, trace) in traces.items()}
    now, redone, spent, heard = [0], [0], _Spent(), list[Heard]()

    def listen(side: Side, referee: Referee) -> Ask:
        terms = referee.terms

        def ask(asked_: DisputeQuestion, question: Question) -> Iterator[Reply]:
            if side.address != honest:
                now[0] = referee.find_ends()[side.address]
            if side.address == honest or question.asked != "values":
                replies = list(answer_as(side, course, terms)(asked_, question))
            else:
                replies = [_sign_too_long(side, terms, asked_, question)]
            for reply in replies if side.address == honest else ():
                spent.record(question, reply)
            yield from replies

        return ask

    def redo(leaf: int, inputs: Sequence[bytes]) -> bytes:
        redone[0] += 1
        return redo_operation(task.operations, leaf, inputs)

    while (pair := choose_sides(answers, heard)) is not None:
        roots = Hash(traces[pair[0]][1].root), Hash(traces[pair[1]][1].root)
        terms = Terms(DOMAIN, OFFER, pair, roots, ANSWER_S, MOST_SHOWN)
        referee = Referee(terms, course, now[0])
        asks = {each: listen(side_of(traces[each][0], task, traces[each][1]), referee) for each in pair}
        verdict = hear_dispute(referee, asks, redo, lambda: now[0])
        heard.append(Heard(pair, verdict.wrong))
    figures = {"answers": float(spent.answers), "bytes": float(spent.bytes), "seconds": float(now[0])}
    held = spent.hearings <= len(heard) <= MOST_HEARD and redone[0] <= len(heard)
    cheap = spent.runs <= 2 * spent.hearings and spent.bytes <= spent.hearings * MOST_MESSAGES
    clocks = 2 * len(heard) * count_total(ANSWER_S, across=False)
    bounded = spent.answers <= spent.hearings * count_all(course) and now[0] <= clocks
    if find_standing_root(answers, heard) != answers[honest] or not (held and cheap and bounded):
        return Seen(f"{heard}: {spent}, {redone[0]} operations, {now[0]} s", figures)
    return Seen(CROWDED, figures)


def _sign_too_long(side: Side, terms: Terms, asked_: DisputeQuestion, question: Question) -> Reply:
    """Returns a signed answer that is longer than the limit: where the other's is stored, it changes nothing."""
    body, about = bytes(terms.most_values + 1), question.digest(terms.dispute, asked_.number)
    struct = DisputeAnswer(terms.dispute, side.address, asked_.number, about, digest_reply(body))
    return Reply(side.address, asked_.number, body, side.sign(digest_struct(terms.domain, struct)))


def _build_crowd() -> dict[PrivateKey, Lie]:
    """Three lies, each of another operation of the local steps."""
    task, lie = disputed()
    plan = task.operations.plan
    moves = (leaf for leaf in range(lie.leaf + 1, len(plan)) if plan[leaf].kind == "move")
    others = (told for leaf in moves if (told := build_lie(task, leaf, 0, Random(leaf))) is not None)
    return {PrivateKey(bytes([number]) * 32): each for number, each in enumerate([lie, next(others), next(others)], 2)}


@attack("a silent side of a dispute", SILENT)
def a_side_that_falls_silent_at_any_question(_scene: Scene) -> str:
    task, lie = disputed()
    course, terms = PlanCourse(task.operations.plan), terms_of(task, lie)
    speaking = answer_as(side_of(LIAR, task, lie.trace), course, terms)
    for quiet in range(count_all(course)):

        def ask(asked_: DisputeQuestion, question: Question, quiet: int = quiet) -> Iterator[Reply]:
            yield from speaking(asked_, question) if asked_.number < quiet else ()

        verdict, referee = play_dispute(task, lie, liar=ask)
        silent = "in time" in verdict.why and referee.open_question.number == quiet
        if verdict.wrong != {address_of(LIAR)} or not (silent or verdict.leaf == lie.leaf):
            return f"silent at question {quiet}: {verdict.why}"
    return SILENT


@attack("dispute griefing", "both the command of the honest side and the liar hear it: the liar loses at its lie")
def a_liar_that_stands_by_its_answer(scene: Scene) -> str:
    """Of a real job: its answer was outvoted, its trace is honest up to the payload, and it has the referee ask."""
    job = scene.post()
    with Runner(RunnerSettings()) as runner:
        here = runner.determinism_class()
    team = job.team(HONEST_WORKER, HONEST_WORKER, TRIPLED)
    for worker in team:
        worker.determinism_class = here
    job.play(*team)
    task, referee = job.fetch_view("/tasks")["items"][0]["id"], scene.key()
    sides = [word for worker in (team[0], team[2]) for word in ("--side", worker.address)]
    with (
        TemporaryDirectory() as folder,
        running(scene, referee, "judge", job.id, task, *sides, "--port", "0") as (judging, heard),
        running(scene, team[0].key, "answer", job.id, task, "--referee", heard["url"]) as (answering, _),
    ):
        ruling = defend_lie(scene, team[2].key, Path(folder), job.id, task, heard["url"])
        ends = [judging.wait(PATIENCE_S), answering.wait(PATIENCE_S)]
    if ends != [0, 0] or ruling.wrong != (team[2].address,) or "root of the payload" not in ruling.why:
        return f"{ends}: {ruling}"
    return "both the command of the honest side and the liar hear it: the liar loses at its lie"


@contextmanager
def running(
    scene: Scene, key: PrivateKey, command: str, *words: str
) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """Runs a command of `gradmarket wallet dispute` with this wallet; gives its process and its first line."""
    with TemporaryDirectory() as folder:
        durable.write_file_atomically(Path(folder) / wallet.PLAIN, key.to_bytes().hex().encode())
        given = ["wallet", "dispute", command, *words, "--market", scene.url, "--data", folder, "--json"]
        started = [sys.executable, "-c", "from gradmarket.cli import app; app()", *given]
        with subprocess.Popen(started, stdout=subprocess.PIPE, text=True) as process:
            try:
                line = (process.stdout or sys.stdin).readline() if command == "judge" else "{}"
                yield process, json.loads(line or "{}")
            finally:
                process.kill()


def defend_lie(scene: Scene, key: PrivateKey, folder: Path, job: JobId, task: str, url: str) -> SignedRuling:
    """Answers as the command does, with the last leaf made to fit the lie."""
    settings = WorkerSettings(market=scene.url, data=folder)
    market = MarketClient(scene.url)
    market.identify(Credentials(Wallet(key, folder), address_of(key), market.facts().chain_id))
    disputed = fetch_disputed_task(market, scene.ledger, address_of(key), job, task)
    root = hash_of(disputed.root_of(address_of(key)))
    named = disputed.publication, disputed.offer, disputed.classes.values()
    with open_course(settings, market, *named) as course:
        last = course.answer_leaf(root)
        checkpoints = [*course.runner.trace(course.inputs).checkpoints[:-1], last]

        def detail(part: int) -> Sequence[bytes]:
            return [*course.detail(part)[:-2], last, last]

        side = Side(address_of(key), signer_of(key), checkpoints, detail, course.show, course.results)
        transport = connect_to_referee(url, lambda _seconds: False)
        told = ask_referee(transport, wait_s=0.0)
        liar = CarefulSide(disputed.domain, disputed.name, root, side, course, Address(told.referee))
        return answer_until_ruled(transport, liar, lambda _text: None)


RELAYED = "the relay refuses what is unsigned, too long or of another's turn; the griefer loses as any liar"
HEARD = "the job's referee finds the liar wrong at its lie: the honest answer is paid, the lie is not"
LEAST_ANSWERS = 3
REFEREED = {"replication": {"name": "fixed", "replicas": 2, "max_replicas": 4}, "disputes": "referee"}


@attack("dispute griefing", RELAYED)
def a_side_that_brings_the_relay_all_that_it_should_not_take(scene: Scene) -> str:
    """Before each answer of its own: ones of 32 MiB, of other turns, and of the other side."""
    observed = play_before_referee(scene, brings=True)
    return RELAYED if observed == HEARD else observed


@attack("a liar before the job's referee", HEARD)
def a_liar_that_answers_the_referee_of_its_job(scene: Scene) -> str:
    return play_before_referee(scene, brings=False)


def play_before_referee(scene: Scene, brings: bool) -> str:
    """Both sides are asked by the service, and the honest one answers too.

    One that `brings` griefs the service before each of its answers.
    """
    job, honest, liar = seat_liar(scene)
    return describe_ruling(job, honest, liar, hear_both(job, honest, liar, brings))


def seat_liar(scene: Scene, **changes: Any) -> tuple[Posted, ScriptedWorker, ScriptedWorker]:
    """A job with a referee, an honest worker and a liar: of the class in which the service computes."""
    job = scene.post(**REFEREED | changes)
    honest, liar = job.team(HONEST_WORKER, TRIPLED)
    for worker in (honest, liar):
        worker.determinism_class = find_class()
    return job, honest, liar


@cache
def find_class() -> str:
    with Runner(RunnerSettings()) as runner:
        return runner.determinism_class()


def hear_both(
    job: Posted, honest: ScriptedWorker, liar: ScriptedWorker, brings: bool = False, most: int | None = None
) -> list[int]:
    """Plays the job to its end, or until both have given `most` answers to its referee; returns their numbers."""
    over = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        attending = [
            pool.submit(attend, job, worker.key, worker is liar, over, brings and worker is liar, most)
            for worker in (honest, liar)
        ]
        try:
            job.play(honest, liar, done=None if most is None else lambda: all(each.done() for each in attending))
        finally:
            over.set()
        return [each.result() for each in attending]


def describe_ruling(job: Posted, honest: ScriptedWorker, liar: ScriptedWorker, answered: Sequence[int]) -> str:
    (task,) = (each["id"] for each in job.fetch_view("/tasks")["items"] if each["root"])
    (hearing,) = job.fetch_view(f"/tasks/{task}")["hearings"]
    ruling, paid = hearing["ruling"], {item["worker"] for item in job.fetch_view("/payments")["items"]}
    found = ruling["wrong"] == [liar.address] and "root of the payload" in ruling["why"]
    if not found or paid != {honest.address} or min(answered) < LEAST_ANSWERS:
        return f"{ruling}, {paid} paid, {answered} answers"
    return HEARD


def attend(
    job: Posted, key: PrivateKey, lies: bool, over: threading.Event, brings: bool = False, most: int | None = None
) -> int:
    """Answers the job's referee until it is over, `most` times at most; returns the number of answers."""
    with signed_in(job.scene, key) as (settings, market):
        questions = next_questions(market, over)
        first = next(questions, None)
        if first is None:
            return 0
        shown, answered = job.fetch_view(f"/tasks/{first.replica.rsplit('-', 2)[0]}"), 0
        offer = OfferFields.model_validate(shown["offer"]).struct()
        with open_side(job, key, first, offer, settings, market, lies) as side:
            for asked_ in chain([first], questions):
                put = PutQuestion.read(asked_)
                reply = side.answer(put)
                fields: dict[str, Any] = {
                    "side": side.side.address,
                    "number": reply.number,
                    "said": digest_reply(reply.said),
                }
                said = HearingAnswer(**fields, signature=reply.signature, replica=asked_.replica)
                if brings and not all(_is_refused(market, grief) for grief in _list_griefs(said, put)):
                    return -1
                answer_hearing(market, said, reply.said)
                answered += 1
                if answered == most:
                    break
        return answered


@contextmanager
def signed_in(scene: Scene, key: PrivateKey) -> Iterator[tuple[WorkerSettings, MarketClient]]:
    with TemporaryDirectory() as folder:
        settings = WorkerSettings(market=scene.url, data=Path(folder))
        market = MarketClient(scene.url)
        try:
            market.identify(Credentials(Wallet(key, Path(folder)), address_of(key), market.facts().chain_id))
            yield settings, market
        finally:
            market.close()


@contextmanager
def open_side(
    job: Posted,
    key: PrivateKey,
    put: PutInHearing,
    offer: Offer,
    settings: WorkerSettings,
    market: MarketClient,
    lies: bool,
) -> Iterator[CarefulSide]:
    """A liar's trace is honest up to the payload: its last leaf fits its lie."""
    me, publication, signer = address_of(key), market.job(job.id).publication, market.facts().signer
    assert publication is not None
    root = Hash(put.roots[put.sides.index(me)])
    with open_course(settings, market, publication, offer, []) as course:
        traced, last = course.runner.trace(course.inputs).checkpoints, course.answer_leaf(root)

        def detail(part: int) -> Sequence[bytes]:
            return [*course.detail(part)[:-2], last, last] if lies else course.detail(part)

        own = Side(me, signer_of(key), [*traced[:-1], last], detail, course.show, course.results)
        yield CarefulSide(job.domain, digest_struct(job.domain, offer), root, own, course, signer)


def _is_refused(market: MarketClient, said: HearingAnswer) -> bool:
    try:
        answer_hearing(market, said, bytes(MOST_BROUGHT + 1))
    except ServiceProblem:
        return True
    return False


def _list_griefs(said: HearingAnswer, put: PutQuestion) -> list[HearingAnswer]:
    other = next(side for side in put.sides if side != said.side)
    changes: list[dict[str, Any]] = [{"number": said.number + 1}, {"side": other}, {"signature": bytes(65)}]
    griefs = [said.model_copy(update=change) for change in changes]
    return griefs if put.question.asked in SHOWN else [said, *griefs]


def next_questions(market: MarketClient, over: threading.Event) -> Iterator[HearingQuestion]:
    while not over.is_set():
        yield from ask_hearings(market, 1.0).questions
