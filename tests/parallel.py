"""Tests in several processes: `pytest --processes N`.

They are forked when what most tests import is there, and each collects and runs the files that it asks for, one after
another: no module of tests is read by more than one of them, nor waits for all others to be read. What a fixture of a
session made stays in its process until that ends. The first process runs nothing and tells what the others report.
"""

import gc
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from itertools import zip_longest
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any, Final

import pytest
from _pytest.runner import collect_one_node

Group = Sequence[pytest.Item | pytest.Collector]
"""Files that one process runs, one after another."""
PRELOADED: Final = ("torch", "web3", "fastapi", "sqlalchemy.orm", "alembic", "hypothesis", "httpx", "numba", "pyarrow")
PARENTS_OWN: Final = ("terminalreporter", "durations-recorder", "processes")
"""Plug-ins that hear each report once, in the first process."""
ENDED: Final = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--processes", type=int, default=0, help="run files of tests in so many processes")


def file_named(node: pytest.Item | pytest.Collector) -> str:
    return node.nodeid.partition("::")[0]


@dataclass(eq=False)
class Child:
    pid: int
    group: Group = ()


@dataclass(eq=False)
class Processes:
    """The session of the first process. `arrange` makes groups of the files that are asked for, in their order."""

    arrange: Callable[[Sequence[pytest.Item | pytest.Collector]], Sequence[Group]]
    preloaded: Sequence[str] = PRELOADED
    groups: Sequence[Group] = ()
    taken: int = 0
    """The groups before this one are with a child."""
    children: dict[Connection, Child] = field(default_factory=dict)

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        session.config.pluginmanager.getplugin("terminalreporter")._show_progress_info = False
        session.perform_collect = partial(session.perform_collect, genitems=False)  # type: ignore[method-assign]

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item | pytest.Collector]) -> None:
        """Takes the files and folders that were found: the session itself has no tests."""
        self.groups = self.arrange([file for node in items for file in files_below(node)])
        items.clear()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Returns in each child too, when it has run all that it was given."""
        for name in self.preloaded:
            import_module(name)
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # theirs lie in it
        gc.collect()
        gc.freeze()
        if any(self._fork(session) for _ in range(min(session.config.option.processes, len(self.groups)))):
            return True
        while self.children:
            for connection in wait(list(self.children)):
                assert isinstance(connection, Connection)
                if not self._hear(session, connection) and self.taken < len(self.groups) and self._fork(session):
                    return True
        return True

    def _fork(self, session: pytest.Session) -> bool:
        """Returns whether this is the child."""
        ours, theirs = Pipe()
        pid = os.fork()
        if pid:
            theirs.close()
            self.children[ours] = Child(pid)
            return False
        for connection in (ours, *self.children):
            connection.close()
        self.children.clear()
        RunGroups(session, theirs, self.groups).run()
        return True

    def _hear(self, session: pytest.Session, connection: Connection) -> bool:
        """Takes a word of the child; False where it ended before its time."""
        hook, child = session.config.hook, self.children[connection]
        try:
            kind, told = connection.recv()
        except (EOFError, ConnectionResetError):
            del self.children[connection]
            code = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
            if lost := code not in ENDED or bool(child.group):
                hook.pytest_collectreport(report=lost_report(child, code))
            return not lost
        if kind == "next":
            session.testscollected += told
            ends = session.shouldfail or session.shouldstop or self.taken == len(self.groups)
            child.group = () if ends else self.groups[self.taken]
            connection.send(None if ends else self.taken)
            self.taken += not ends
        else:
            report = hook.pytest_report_from_serializable(config=session.config, data=told)
            getattr(hook, kind)(report=report)
        return True


def files_below(node: pytest.Item | pytest.Collector) -> Iterator[pytest.Item | pytest.Collector]:
    if not isinstance(node, pytest.Directory):
        yield node
        return
    for each in collect_one_node(node).result:
        yield from files_below(each)


def lost_report(child: Child, code: int) -> pytest.CollectReport:
    files = " ".join(map(file_named, child.group)) or "what its tests share"
    return pytest.CollectReport(files, "failed", f"the process that ran {files} ended with {code}", [])


@dataclass(eq=False)
class RunGroups:
    """A forked process: it collects and runs a group after another, and tells the first process each report."""

    session: pytest.Session
    told: Connection
    groups: Sequence[Group]

    def run(self) -> None:
        plugins, session = self.session.config.pluginmanager, self.session
        for name in PARENTS_OWN:
            if plugins.has_plugin(name):
                plugins.unregister(name=name)
        restart_capture(session.config)
        plugins.register(self)
        if clock := plugins.getplugin("cpu-clock"):
            clock.start()
        temporary = session.config._tmp_path_factory  # type: ignore[attr-defined]
        temporary._basetemp = temporary.mktemp("process")
        count = 0
        while (place := self._ask(count)) is not None:
            items = [item for node in self.groups[place] for item in session.genitems(node)]
            session.config.hook.pytest_collection_modifyitems(session=session, config=session.config, items=items)
            session.config.hook.pytest_collection_finish(session=session)
            session.items, count = items, len(items)
            for item, following in zip_longest(items, items[1:], fillvalue=OnlySession(session)):
                session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)

    def _ask(self, ran: int) -> int | None:
        """Returns the place of the next group; None where none is left."""
        self.told.send(("next", ran))
        place: int | None = self.told.recv()
        return place

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._tell("pytest_runtest_logreport", report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if not report.passed:
            self._tell("pytest_collectreport", report)

    def _tell(self, kind: str, report: pytest.TestReport | pytest.CollectReport) -> None:
        config = self.session.config
        self.told.send((kind, config.hook.pytest_report_to_serializable(config=config, report=report)))


@dataclass(eq=False)
class OnlySession:
    """In place of the item that follows the last one of a group: what it needs is the session, which stays set up."""

    session: pytest.Session

    def listchain(self) -> list[Any]:
        return [self.session]


def restart_capture(config: pytest.Config) -> None:
    """Has this process write into files of its own what its tests print."""
    capturing = config.pluginmanager.getplugin("capturemanager")
    capturing.stop_global_capturing()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for what a thread says while no test runs
    capturing.start_global_capturing()
    capturing.suspend_global_capture()
