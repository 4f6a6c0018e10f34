"""Runs the stages across machines by Celery: the same stages over the same rows. The broker may lose everything.

    a commit notifies a stage            ->  sweep(stage)  ->  run(stage, row) for every row that is ready
    beat, every sweep_s  ->  look_out()  ->  sweep(stage) for every stage with a ready row

`gradmarket queue worker` runs them, in as many processes and on as many machines as wanted; `gradmarket queue beat`
only requests to look out. A lost message costs one sweep, one that comes twice changes nothing, an old one is dropped.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import cached_property
from typing import Annotated, Any, Final, NoReturn

import structlog
import typer
from celery import Celery, bootsteps, signals
from celery.beat import Scheduler, SchedulingError, Service
from kombu.exceptions import OperationalError

from gradmarket.user_files import settings_from
from requester.context import Context
from requester.engine import list_waiting_topics, ready_rows, run_once, stages_with
from requester.feature import look_after
from requester.features import FEATURES
from requester.features.many_machines.broker import RETRY, PromptAMQP
from requester.features.part_troubles import BROKER, note_recovery
from requester.settings import RequesterSettings
from requester.stages import settle
from requester.wiring import configure_logging, open_context

STAGES: Final = stages_with(FEATURES)
LOOK_OUT: Final = "gradmarket.look_out"
SWEEP: Final = "gradmarket.sweep"
RUN: Final = "gradmarket.run"
FRESH_S: Final = 10.0
"""Seconds after which a message is dropped: a sweep has requested the same again since."""

log = structlog.get_logger("gradmarket.queue")


class LookOuts(Scheduler):  # type: ignore[misc]
    """A scheduler that keeps nothing on disk, and continues where the broker does not take a message."""

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        try:
            self.apply_async(entry, producer=producer, advance=False)
            note_recovery(BROKER)
        except SchedulingError as error:
            log.warning("a look-out is lost", part=BROKER, error=str(error))


class BrokerBack(bootsteps.StartStopStep):  # type: ignore[misc]
    """A part of a Celery worker's consumer that starts after each connection to the broker."""

    requires = ("celery.worker.consumer.connection:Connection",)

    def start(self, parent: Any) -> None:
        note_recovery(BROKER)


def celery_of(settings: RequesterSettings) -> Celery:
    """Returns the application that workers, beat and notifiers share."""
    broker = settings.broker.get_secret_value() if settings.broker else None
    app = Celery("gradmarket", broker=broker, amqp=PromptAMQP, set_as_current=False)
    app.conf.update(
        task_default_queue="gradmarket",
        task_serializer="json",
        accept_content=["json"],
        task_ignore_result=True,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        worker_enable_remote_control=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        beat_scheduler=LookOuts,
        # a sender does not wait out kombu's six seconds for a broker that is away: the next sweep finds the row
        broker_transport_options={"visibility_timeout": 60, "socket_connect_timeout": 1.0, "max_retries": 1} | RETRY,
        beat_schedule={
            "look out": {
                "task": LOOK_OUT,
                "schedule": settings.sweep_s,
                "options": {"expires": FRESH_S, "retry": False},
            }
        },
        beat_max_loop_interval=settings.sweep_s,
    )
    return app


def relay_of(settings: RequesterSettings) -> "BrokerNotifier":
    return BrokerNotifier(celery_of(settings))


class BrokerNotifier:
    """Sends notifications to the broker from a thread of its own: no transaction waits for a broker that is gone."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._asked = threading.Condition()
        self._topics: set[str] = set()
        self._thread: threading.Thread | None = None

    def __call__(self, topics: Iterable[str]) -> None:
        stages = STAGES.keys() & set(topics)
        if not stages:
            return
        with self._asked:
            self._topics |= stages
            self._asked.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run_send_loop, name="broker-notifier", daemon=True)
                self._thread.start()

    def _run_send_loop(self) -> None:
        while True:
            with self._asked:
                self._asked.wait_for(lambda: self._topics)
                topics, self._topics = self._topics, set()
            for topic in topics:
                try:
                    send_message(self._app, SWEEP, topic)
                except Exception:  # the thread is the only one that notifies
                    log.exception("a notification is lost", topic=topic)


def send_message(app: Celery, task: str, *arguments: str, seconds: float = 0.0) -> None:
    """Sends a message once: if the broker does not take it, the next sweep finds the row."""
    try:
        app.send_task(task, arguments, countdown=seconds, expires=FRESH_S + seconds, retry=False)
        note_recovery(BROKER)
    except (OperationalError, OSError) as error:
        log.warning("a message is lost", part=BROKER, task=task, about=arguments, error=str(error))


class TaskRunner:
    """The resources of one child process, created at its first task: none may be inherited over a fork."""

    def __init__(self, app: Celery, settings: RequesterSettings) -> None:
        self._app = app
        self._settings = settings
        self._open = ExitStack()

    @cached_property
    def _context(self) -> Context:
        url = self._settings.url or f"http://{self._settings.host}:{self._settings.port}"
        return self._open.enter_context(open_context(self._settings, url, BrokerNotifier(self._app)))

    def look_out(self) -> None:
        """Requests a sweep of each stage with a ready row: notifications get lost, and due times send none."""
        for topic in list_waiting_topics(self._context, list(STAGES.values())):
            send_message(self._app, SWEEP, topic)

    def sweep_topic(self, topic: str) -> None:
        """Requests a run of every row that is ready."""
        for row_id in ready_rows(self._context, STAGES[topic]):
            send_message(self._app, RUN, topic, row_id)

    def run(self, topic: str, row_id: str) -> None:
        """Moves one row on; requests another run where it is to be tried again soon, or is ready for more at once."""
        context, stage = self._context, STAGES[topic]
        look_after(context)
        again = run_once(context, stage, row_id)
        if stage is settle:
            context.chain_worker.leave()
        if again is None and row_id in ready_rows(context, stage):
            send_message(self._app, RUN, topic, row_id)
        elif again is not None and again < context.settings.sweep_s:
            send_message(self._app, RUN, topic, row_id, seconds=again)

    def close(self, **_signal: Any) -> None:
        self._open.close()


def worker_of(settings: RequesterSettings) -> Celery:
    """Returns the application with its tasks."""
    app = celery_of(settings)
    runner = TaskRunner(app, settings)
    app.task(name=LOOK_OUT)(runner.look_out)
    app.task(name=SWEEP)(runner.sweep_topic)
    app.task(name=RUN)(runner.run)
    app.steps["consumer"].add(BrokerBack)
    signals.worker_process_shutdown.connect(runner.close, weak=False)
    return app


app = typer.Typer(no_args_is_help=True, help="Run the stages in Celery workers, where the service does not.")
Json = Annotated[bool, typer.Option("--json", help="Log as JSON lines")]


@app.command()
def worker(
    concurrency: Annotated[int, typer.Option(min=1, help="Child processes")] = 2,
    json: Json = False,
) -> None:
    """Run stages. The first SIGTERM ends it after the running ones."""
    settings = _load_celery_settings(json)
    application = worker_of(settings)
    running = application.Worker(pool="prefork", concurrency=concurrency, quiet=True, optimization="fair", **_ALONE)
    running.start()
    raise typer.Exit(running.exitcode or 0)


_ALONE: Final = {"without_gossip": True, "without_mingle": True, "without_heartbeat": True}
"""Workers need no messages to each other: they share the rows."""


@app.command()
def beat(json: Json = False) -> None:
    """Request a look for ready rows, once each sweep."""
    settings = _load_celery_settings(json)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signals.beat_init.connect(_end_on_sigterm)
    scheduler: Callable[..., Any] = celery_of(settings).Beat
    scheduler(quiet=True).run()


def _end_on_sigterm(sender: Service, **_signal: Any) -> None:
    """Replaces Celery's handler, which only raises: Python drops an exception that is raised in a destructor."""

    def stop(*_arguments: object) -> NoReturn:
        sender.stop()
        raise SystemExit

    signal.signal(signal.SIGTERM, stop)


def _load_celery_settings(json: bool) -> RequesterSettings:
    settings = settings_from(RequesterSettings, {})
    if settings.stages != "celery":
        raise typer.BadParameter("the service runs the stages itself: set GRADMARKET_STAGES=celery for all of it")
    configure_logging(json, settings.log)
    os.umask(settings.hidden)
    return settings
