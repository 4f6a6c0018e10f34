"""`gradmarket wallet heads …`: two observers of a job's log compare the heads that they received.

Any two of them can convict a service that shows each another history: both heads are signed, and no proof connects
them.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Final

import typer
from pydantic import ConfigDict, Field, ValidationError

from contracts import events
from contracts.log_heads import fetch_head_times, fetch_heads
from gradmarket.market.errors import MarketError, Refused
from gradmarket.market.features.log import job_log
from gradmarket.market.fields import DeferredModel, HashField, first_fault
from gradmarket.market.rules.proof import is_signed_by
from gradmarket.market.signing import Domain
from gradmarket.market.terms import Address, Hash, JobId
from gradmarket.user_files import check_writable, parse_place, write_all
from worker import wallet
from worker.features.verify import reported_heads
from worker.features.verify.reported_heads import HeadCheck, ReportedHead, fetch_prefix_proof
from worker.journal import Journal
from worker.money import known_chains
from worker.money.account_store import JobAccount, open_account_store
from worker.money.chain_view import ledger_of
from worker.options import DataOption, JsonOption, PassphraseOption, RpcOption, add_wallet_passphrase, settings_of
from worker.protocol.client import MarketClient
from worker.settings import WorkerSettings

MARKET_S: Final = 5.0
MOST_BYTES: Final = 2**26
app = typer.Typer(no_args_is_help=True, help="The heads of jobs' logs that this wallet was told, to compare.")
Prove = Callable[[int, int], Sequence[bytes] | None]
"""Returns the proof that connects a log of this size with a longer one; None without any."""


class ObservedJob(DeferredModel):
    """A job's heads as one observer received them."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    instance: HashField
    chain_job: int = Field(ge=0)
    job: str = Field(max_length=64)
    heads: tuple[ReportedHead, ...]


class ObservedHeads(DeferredModel):
    """The file that `wallet heads export` writes."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    jobs: tuple[ObservedJob, ...]


@dataclass(frozen=True)
class HeadFork:
    """Two signed heads of one log that no proof connects: they convict their signer."""

    one: ReportedHead
    other: ReportedHead
    why: str


def find_forks(heads: Sequence[ReportedHead], domain: Domain, signer: Address, prove: Prove) -> Iterator[HeadFork]:
    """Yields each two heads in a row, by their sizes, of which the first is no beginning of the second.

    One line of heads where each begins the next has one history. Heads that the signer did not sign are skipped.
    """
    signed = [one for one in heads if is_signed_by(domain, one.head.struct(), one.head.signature, signer)]
    distinct = {(one.head.size, one.head.root): one for one in signed}
    for one, other in pairwise(distinct[key] for key in sorted(distinct)):
        small, large = one.head.struct(), other.head.struct()
        path = None if small.size == large.size else prove(small.size, large.size)
        if why := job_log.find_fork(small, large, path):
            yield HeadFork(one, other, why)


@app.command("export")
def export_command(
    file: Annotated[Path, typer.Argument(parser=parse_place, metavar="FILE", help="File for the heads, as JSON.")],
    data: DataOption = None,
    passphrase_file: PassphraseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the signed heads of jobs' logs that this wallet received, for another observer to compare."""
    settings = add_wallet_passphrase(settings_of(data=data, passphrase_file=passphrase_file))
    observed = ObservedHeads(jobs=tuple(job for _, job in _list_observed(settings)))
    write_all({check_writable(file): observed.model_dump_json(indent=1) + "\n"})
    count = sum(len(job.heads) for job in observed.jobs)
    Journal(as_json).report(
        "heads", f"{count} heads of {len(observed.jobs)} jobs are in {file}.", heads=count, file=str(file)
    )


@app.command("compare")
def compare_command(
    file: Annotated[
        Path,
        typer.Argument(parser=parse_place, metavar="FILE", help="What another observer's `wallet heads export` wrote."),
    ],
    rpc: RpcOption = None,
    data: DataOption = None,
    passphrase_file: PassphraseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Hold another observer's heads against this wallet's own: is one job's log shown as two histories?

    Signers are read from the chain. Ends with 1 where two heads do not connect.
    """
    journal, theirs = Journal(as_json), load_observed_heads(file)
    settings = add_wallet_passphrase(settings_of(rpc=rpc, data=data, passphrase_file=passphrase_file))
    by_job = defaultdict[tuple[Hash, int], list[ReportedHead]](list)
    for job in theirs.jobs:
        by_job[job.instance, job.chain_job] += job.heads
    forks, shared, partly = 0, 0, 0
    for account, mine in _list_observed(settings):
        others = by_job.get((mine.instance, mine.chain_job), [])
        if not others:
            continue
        shared += 1
        found, whole = _compare_job(settings, account, mine, others, journal)
        partly += not whole
        for fork in found:
            forks += 1
            both = [one.model_dump(mode="json") for one in (fork.one, fork.other)]
            text = f"{account.job}: {fork.why}. Both are signed: keep this file and {file}."
            journal.report("fork", text, job=account.job, heads=both)
    seen = f"{forks} forks" if forks else f"no fork, {partly} of them only by heads of one size"
    summary = f"{shared} jobs in common: {seen if forks or partly else 'one history each'}."
    journal.report(
        "compared",
        summary if shared else "No job in common: nothing is compared.",
        jobs=shared,
        forks=forks,
        partly=partly,
    )
    raise typer.Exit(1 if forks else 0)


def load_observed_heads(file: Path) -> ObservedHeads:
    """Returns the heads of a file. Raises Refused for any other file."""
    remedy = "name what `gradmarket wallet heads export FILE` wrote"
    if file.is_dir():
        raise Refused(f"{file} is a folder", remedy)
    try:
        if file.stat().st_size > MOST_BYTES:
            raise Refused(f"{file} has more than {MOST_BYTES} bytes", remedy)
        return ObservedHeads.model_validate_json(file.read_bytes())
    except OSError as error:
        raise Refused(f"{file} cannot be read: {error.strerror}", remedy) from None
    except ValidationError as error:
        raise Refused(f"{file} has no heads of logs: {': '.join(first_fault(error, 'heads'))}", remedy) from None


def _list_observed(settings: WorkerSettings) -> Iterator[tuple[JobAccount, ObservedJob]]:
    me = wallet.load_wallet(settings.data, settings.secret).address
    for account in open_account_store(settings.data, me).accounts:
        instance = Hash(account.instance)
        path = reported_heads.file_of(settings.data, instance, account.chain_job)
        if heads := tuple(reported_heads.load_reported_heads(path)):
            yield account, ObservedJob(instance=instance, chain_job=account.chain_job, job=account.job, heads=heads)


def _compare_job(
    settings: WorkerSettings, account: JobAccount, mine: ObservedJob, others: Sequence[ReportedHead], journal: Journal
) -> tuple[list[HeadFork], bool]:
    """Returns the forks that no restore admits, and whether heads of several sizes were compared.

    Heads of one size need no market; it proves the connection of others, and a restore.
    """
    heads = [*mine.heads, *others]
    facts = known_chains.load_chain_facts(settings.data, Hash(account.instance))
    ledger = ledger_of(settings.node, facts)
    signer = events.opened_job(ledger, account.chain_job).signer
    until = time.monotonic() + MARKET_S
    market = MarketClient(mine.heads[-1].market, lambda _seconds: time.monotonic() < until)
    path = reported_heads.file_of(settings.data, Hash(account.instance), account.chain_job)
    carried = partial(fetch_heads, ledger, account.chain_job), partial(fetch_head_times, ledger, account.chain_job)
    check = HeadCheck(market, JobId(account.job), account.domain, signer, path, *carried, time.time)
    shown = 0

    def prove(small: int, large: int) -> Sequence[bytes] | None:
        proof = fetch_prefix_proof(market, JobId(account.job), small, large) if large <= shown else None
        return None if proof is None else proof.path

    forks = list[HeadFork]()
    try:
        head = market.log(JobId(account.job))
        shown = 0 if head is None else head.size
        for fork in find_forks(heads, account.domain, signer, prove):
            if restores := check.find_restores([fork.one, fork.other]):
                text = f"{account.job}: its service was restored, as leaf {restores[0].number} of its log admits."
                journal.report("restored", text, job=account.job)
            else:
                forks.append(fork)
    except MarketError as error:
        text = f"{account.job}: its market does not answer, so only heads of one size are compared: {error}"
        journal.report("market_silent", text, job=account.job)
        alike = [
            one
            for one in find_forks(heads, account.domain, signer, lambda _small, _large: ())
            if one.one.head.size == one.other.head.size
        ]
        return [*forks, *(one for one in alike if one not in forks)], False
    finally:
        market.close()
    return forks, True
