"""Errors and their remedies: the one place where the commands turn an exception into sentences."""

import errno
import json
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

from pydantic import ValidationError
from typer import TyperException

from gradmarket.client.client_errors import Damaged, ServiceProblem, ServiceUnreachable
from gradmarket.market.errors import Conflict, MarketError, NotFound, OutOfMemory, Refused, RunnerFailed
from gradmarket.market.fields import first_fault
from gradmarket.network.chain_errors import (
    ChainUnreachable,
    ContractRefused,
    ForeignChain,
    LocalChainFailed,
    NodeRefused,
)
from gradmarket.terminal import echo_text

CODE: Final = 2
"""The exit code of a mistake; 1 is a command's own "no"."""
BUG: Final = 70
"""The exit code of a fault of this program (EX_SOFTWARE of sysexits.h)."""

STATUSES: Final = {
    401: "give the requester's token with --token or GRADMARKET_TOKEN",
    403: "give a token that may do this with --token or GRADMARKET_TOKEN",
    404: "look for it with `gradmarket job list`",
    409: "look at its state with `gradmarket job show`",
    429: "wait a little and try again",
    503: "try again later, or run `gradmarket doctor` where the service runs",
}
NO_DOOR: Final = (404, "Not Found")
"""The answer for an unknown route; an absent row or blob has a longer detail."""
WITHIN_JOB: Final = (" of job ", " in job ")
"""Words of a 404 about a part of a job that exists: the list of jobs has no part."""
ANY_STATE: Final = "read its state"
"""Begins the remedy of a 409 for all things: this machine's command is a better one."""
LISTS: Final = {"token": "gradmarket token list", "webhook": "gradmarket webhook list"}
"""Command about something else than a job -> the command that lists it."""
KINDS: Final[Sequence[tuple[type[Exception], str]]] = (
    (ServiceUnreachable, "start it with `gradmarket serve`, or name the right address with --market"),
    (Damaged, "try again, or ask the service's operator"),
    (ChainUnreachable, "start the chain's node, or name another one with --rpc"),
    (ForeignChain, "name the node of the chain that deployment.json names with --rpc"),
    (NodeRefused, "look whether the sender has money for gas, and the node is one of this chain"),
    (ContractRefused, "look at its state with `gradmarket job show` or `gradmarket wallet show`"),
    (LocalChainFailed, "run `gradmarket doctor`, or name a node with --rpc"),
    (OutOfMemory, "free memory of the machine or its card, or raise --max-memory"),
    (RunnerFailed, "run `gradmarket doctor`, and try again"),
)
"""The remedy of an error without its own: that of the first kind that it is of."""
DATABASE: Final = "start the database, or set GRADMARKET_DATABASE anew"
DISK: Final = "free some space on the disk"
FULL: Final = ("disk is full", "No space left")
"""Parts of the errors of SQLite and PostgreSQL without room."""
OURS: Final = ("contracts", "gradmarket", "graphdoc", "migrations", "requester", "worker")
"""Packages of this program: where a module of one is missing, no extra brings it."""
EXTRAS: Final = {"worker": "worker", "wallet": "worker", "auditor": "worker", "data": "sdk"}
"""Command -> the extra that installs what it imports; the other commands that need one are the service's."""
PLAIN: Final = (Refused, NotFound, Conflict)
"""Errors whose detail suffices; the others begin with their kind's name."""
NUMBERS: Final = {
    errno.ENOENT: "make it first, or name another place",
    errno.ENOTDIR: "name another place",
    errno.EISDIR: "name a file",
    errno.EEXIST: "name another place",
    errno.EACCES: "name another place, or get the right to use this one",
    errno.EPERM: "name another place, or get the right to use this one",
    errno.EROFS: "name a place that can be written",
    errno.ENOSPC: DISK,
    errno.EDQUOT: DISK,
    errno.ENAMETOOLONG: "name it with fewer letters",
    errno.EADDRINUSE: "name another port with --port, or stop what listens there",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
}


@dataclass(frozen=True)
class WrongField:
    """One field of the input, and its fault."""

    field: str
    detail: str


@dataclass(frozen=True)
class Mistake:
    """The fault, `what`, and its remedy, `fix`; `code` is the process' exit code."""

    what: str
    fix: str
    kind: str
    code: int = CODE
    fields: tuple[WrongField, ...] = ()

    def lines(self) -> list[str]:
        if not self.what:
            return []  # the help was shown in its place
        faults = [f"  {fault.field or 'the job'}: {fault.detail}" for fault in self.fields]
        return [f"error: {self.what}", *faults, f"fix: {self.fix}"]

    def as_json(self) -> dict[str, object]:
        return {"error": {name: value for name, value in asdict(self).items() if name != "code"}}


def describe_error(error: BaseException, command: str) -> Mistake:
    """Returns the error in sentences; `command` is the one that was given, such as "gradmarket job show"."""
    kind, usage = type(error).__name__, f"see `{command} --help`"
    if isinstance(error, TyperException):
        message = _one_line(getattr(error, "format_message", error.__str__)())
        return Mistake(message.replace(" Value error, ", " "), usage, kind)
    if isinstance(error, MarketError):
        plain = str(error.detail if type(error) in PLAIN and error.detail else error)
        if isinstance(error, ServiceProblem):
            fix = _find_status_remedy(error, command) or error.remedy
        else:
            fix = error.remedy or next((fix for kind, fix in KINDS if isinstance(error, kind)), "")
        # the fields of a service's problem, unless its detail has the same text
        named = error.fields if isinstance(error, ServiceProblem) else ()
        fields = tuple(WrongField(one.name, one.detail) for one in named if one.detail not in str(error))
        return Mistake(_one_line(plain), fix or usage, kind, fields=fields)
    if isinstance(error, ValidationError):
        return Mistake(": ".join(first_fault(error)), usage, kind)
    if type(error).__module__.startswith("sqlalchemy."):  # imported only where there is a database
        message = _one_line(getattr(error, "orig", None) or error)
        return Mistake(f"the database: {message}", DISK if any(words in message for words in FULL) else DATABASE, kind)
    if isinstance(error, ModuleNotFoundError):
        if feature := find_absent_feature(error):
            message = f"`{command}` needs the feature {feature}, which this installation was built without"
            return Mistake(message, "install a release of gradmarket: it has every feature", kind)
        name = error.name or "gradmarket"
        if name.partition(".")[0] not in OURS:  # a module of ours that is in no feature should be there
            fix = f"pip install 'gradmarket[{EXTRAS.get(_group_of(command), 'service')}]'"
            return Mistake(f"`{command}` needs {name}, which is not installed", fix, kind)
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename is not None else ""
        return Mistake(
            place + (error.strerror or _one_line(error) or type(error).__name__),
            NUMBERS.get(error.errno or 0, usage),
            kind,
        )
    message = f"gradmarket itself is at fault: {kind}: {_one_line(error)}"
    return Mistake(message, "say the same with --debug and report what it prints", kind, BUG)


def _find_status_remedy(problem: ServiceProblem, command: str) -> str:
    """Returns the command's own remedy, empty where the service's is better."""
    if problem.status == 404 and (lists := LISTS.get(_group_of(command))):
        return f"look for it with `{lists}`"
    if (problem.status, problem.detail) == NO_DOOR:
        return "name the service's address without a path, and an id as `gradmarket job list` has it"
    if problem.status == 404 and any(words in problem.detail for words in WITHIN_JOB):
        return ""
    if problem.status == 409 and problem.remedy and not problem.remedy.startswith(ANY_STATE):
        return ""
    return STATUSES.get(problem.status, "")


def find_absent_feature(error: ModuleNotFoundError) -> str:
    """Returns the feature whose folder is missing; empty where another module is."""
    return (error.name or "").partition(".features.")[2].partition(".")[0]


def print_error(error: Exception, command: str, as_json: bool = False, debug: bool = False) -> int:
    """Prints the error on standard error; returns the exit code."""
    mistake = describe_error(error, command)
    if debug:
        echo_text("".join(traceback.format_exception(error)), err=True)
    for line in (json.dumps(mistake.as_json()),) if as_json else mistake.lines():
        echo_text(line.encode(errors="replace").decode(), err=True)
    return mistake.code


def _group_of(command: str) -> str:
    return command.removeprefix("gradmarket ").split(" ")[0]


def _one_line(text: object) -> str:
    return " ".join(str(text).split())
