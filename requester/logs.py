"""Structured logs in one form, with the ids of each line's rows, and never a token, key or signature."""

import logging
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, TextIO, cast

import structlog
from structlog.contextvars import bound_contextvars, merge_contextvars
from structlog.stdlib import ProcessorFormatter
from structlog.typing import EventDict, Processor, WrappedLogger

from gradmarket.market.printable import printable_lines

HIDDEN: Final = "[hidden]"
_SECRET_NAMES: Final = re.compile(
    r"token|secret|signature|passphrase|password|authorization|cookie|salt|(^|_)key$", re.I
)
_SECRETS: Final = re.compile(
    r"(?<=bearer )\S+"
    r"|(?<=\[parameters: ).*"  # the row's values in a database error
    r"|(?<=://)[^/\s@]+(?=@)"  # a password in a URL
    r"|(?<=with url: )\S+"  # a node's URL contains its customer's key
    r"|0x[0-9a-f]{130}\b",  # a signature of 65 bytes
    re.I,
)
_ROW: Final = re.compile(r"(?P<replica>(?P<task>(?P<job>[0-9a-f]{16})(?:-\d+){3})-\d+-[0-9a-f]+)\Z")
_TASK: Final = re.compile(r"(?P<task>(?P<job>[0-9a-f]{16})(?:-\d+){3})\Z")
_JOB: Final = re.compile(r"(?P<job>[0-9a-f]{16})\Z")


def configure_logging(
    as_json: bool,
    level: str = "WARNING",
    to: TextIO | None = None,
    processors: Sequence[Processor] = (),
    filters: Sequence[logging.Filter] = (),
) -> None:
    """Configures the whole process: its own lines and those of libraries go to standard error unless `to` is given.

    `processors` see its own lines first, and `filters` those of libraries.
    """
    least = logging.getLevelNamesMapping().get(level.upper(), logging.WARNING)
    rendered: list[Processor] = [
        hide_secrets,
        structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer(),
    ]
    shared: list[Processor] = [
        merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    stream = cast(TextIO, Unfailing(to or sys.stderr))
    structlog.configure(
        processors=[*processors, *shared, *rendered],
        wrapper_class=structlog.make_filtering_bound_logger(least),
        logger_factory=structlog.WriteLoggerFactory(stream),  # one write a line: other threads write too
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        ProcessorFormatter(foreign_pre_chain=shared, processors=[ProcessorFormatter.remove_processors_meta, *rendered])
    )
    for each in filters:
        handler.addFilter(each)
    logging.basicConfig(handlers=[handler], level=max(least, logging.INFO), force=True)


class Unfailing:
    """A stream for log lines: a full disk or a closed stream loses the line, but never stops the work it reports."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()


def hide_secrets(_logger: WrappedLogger, _method: str, line: EventDict) -> EventDict:
    """Hides the secrets in a line, by the names of its fields and by the form of their values.

    A stranger's text controls no terminal that shows the log.
    """
    return {name: HIDDEN if _SECRET_NAMES.search(name) else _without_secrets(value) for name, value in line.items()}


def _without_secrets(value: Any) -> Any:
    if isinstance(value, str):
        return printable_lines(_SECRETS.sub(HIDDEN, value))
    if isinstance(value, Mapping):
        return hide_secrets(None, "", dict(value))
    if isinstance(value, list | tuple):
        return [_without_secrets(item) for item in value]
    return HIDDEN if isinstance(value, bytes) else value


@contextmanager
def bind_stage_and_row(stage: str, row_id: str) -> Iterator[None]:
    """Adds the stage and the row's ids to every line within the block."""
    with bound_contextvars(stage=stage, **parse_row_ids(row_id)):
        yield


def parse_row_ids(row_id: str) -> dict[str, str]:
    """Returns job, task and replica, as far as the row's id names them: JOB[-ROUND-INDEX-ATTEMPT[-FENCE-WORKER]]."""
    match = next(filter(None, (form.match(row_id) for form in (_JOB, _TASK, _ROW))), None)
    return match.groupdict() if match else {"row": row_id}
