"""Verifies again everything that this worker received, against its own records and the chain of its own node."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Final

import typer

from contracts import events
from contracts.ledger import Ledger
from contracts.log_heads import fetch_head_times, fetch_heads, parse_head
from gradmarket.archives.mirrors import check_place, describe_trouble, open_mirror
from gradmarket.client.transport import keep_trying_for
from gradmarket.compute.cache import Cache
from gradmarket.market.errors import MarketError, Refused
from gradmarket.market.features.disputes.receipts import KeptReceipt, ReceiptScope
from gradmarket.market.features.log.job_log import SKEW_S
from gradmarket.market.features.log.merkle import is_included
from gradmarket.market.features.verify import Finding, VerdictCase, of_rejection
from gradmarket.market.messages import LogHead, Outcome
from gradmarket.market.money import TokenUnit
from gradmarket.market.release import PROTOCOL
from gradmarket.market.rules.proof import Fault
from gradmarket.market.signing import digest_struct
from gradmarket.market.terms import Address, Hash, JobId, Units
from gradmarket.market.wire.evidence import PublishedAudit
from gradmarket.market.wire.log_proofs import LeafKind, PublishedRestart
from gradmarket.market.wire.poll import NO_ROOT, hash_of
from worker import wallet
from worker.features.disputes.kept_receipts import find_receipts_file, load_receipts
from worker.features.verify import proofs, reported_heads
from worker.features.verify.mirrored_jobs import check_by_mirrors
from worker.features.verify.proofs import ChainHistory
from worker.features.verify.receipt_check import ReceiptCheck
from worker.features.verify.reported_heads import HeadCheck, fetch_leaf_proof
from worker.journal import Journal
from worker.money import known_chains
from worker.money.account_store import AccountStore, JobAccount, convert_to_amount, open_account_store
from worker.money.chain_view import ChainView, ledger_of
from worker.options import DataOption, JsonOption, PassphraseOption, RpcOption, add_wallet_passphrase, settings_of
from worker.protocol import records
from worker.protocol.client import MarketClient
from worker.protocol.in_flight import handed_over
from worker.protocol.records import ReplicaRecord
from worker.settings import WorkerSettings

OVERDUE_S: Final = 3600.0
"""Seconds after its deadlines by which a sent payload should be paid; other uploaders may be asked or awaited first."""
FRESH_S: Final = 30.0
"""Seconds for which the voucher of a verdict may still be missing."""
LOGGED: Final = 64
"""The number of verdicts that are looked up in a job's log at a time."""
SHOWN_NOW: Final = frozenset({Fault.NOT_LOGGED, Fault.FORKED_LOG, Fault.HIDDEN_ANSWER})
"""Faults whose evidence a market may stop showing, so that they are written down."""
MARKET_S: Final = 5.0
"""Seconds for which an unreachable market is retried: its answers are compared with the records, and prove nothing."""


@dataclass(frozen=True)
class SelfCheck:
    """`ask`: whether to compare the markets' publications with the records too.

    `mirrors`: places of archives, read for jobs whose markets do not answer.
    """

    settings: WorkerSettings
    journal: Journal
    ask: bool = True
    mirrors: Sequence[str] = ()
    clock: Callable[[], float] = time.time
    unproven: list[str] = field(default_factory=list)
    """After a run: the claims that could not be held against anything, in words."""

    def run(self) -> bool:
        """Verifies every job in the folder's accounts and logs each finding; returns whether all is read and right.

        Raises NotFound if there is no wallet, Conflict if the accounts are another wallet's.
        """
        me = wallet.load_wallet(self.settings.data, self.settings.secret).address
        account_store = open_account_store(self.settings.data, me)
        done = [self._verify_job(account_store, account, me) for account in account_store.accounts]
        for signer, known in account_store.grievances():
            self.journal.report("grievance", f"Written down while working: {known} by {signer}.", signer=signer)
        sound = all(done) and not account_store.grievances()
        other = sum(account.protocol != PROTOCOL for account in account_store.accounts)
        proven = f"all is proven but what {other} of other releases hold" if other else "all is proven"
        if self.unproven:
            left = "1 thing is" if len(self.unproven) == 1 else f"{len(self.unproven)} things are"
            proven = f"no lie is found, and {left} not proven, as said above: run it again later, or with --mirror"
        result = proven if sound else "NOT all is well"
        count = "1 job" if len(done) == 1 else f"{len(done)} jobs"
        self.journal.report("verified", f"{count}: {result}.", sound=sound, unproven=len(self.unproven))
        return sound

    def _verify_job(self, account_store: AccountStore, account: JobAccount, me: Address) -> bool:
        try:
            facts = known_chains.load_chain_facts(self.settings.data, Hash(account.instance))
            ledger = ledger_of(self.settings.node, facts)
            seen = fetch_chain_history(ledger, account, me)
        except MarketError as error:
            self.journal.report("unread", f"{account.job}: the chain does not tell: {error}", job=account.job)
            return False
        if account.protocol != PROTOCOL:
            return self._verify_voucher_alone(account, me, seen)
        kept = list(records.load_records(self.settings.data, account.domain, account.chain_job))
        findings = [
            *self._find_record_faults(account, me, seen, kept),
            *self._find_published_faults(account, me, ledger, seen, kept),
            *self._check_burns(account, seen, kept, TokenUnit.of(facts)),
        ]
        for finding in findings:
            self._log_finding(account.job, finding)
        self._record_evidence(account_store, seen, findings)
        money = TokenUnit.of(facts)
        self._log_job_summary(account, seen, kept, findings, money)
        return not findings

    def _verify_voucher_alone(self, account: JobAccount, me: Address, seen: ChainHistory) -> bool:
        """Verifies the facts fixed by the contract: this release would check another's records by rules of its own."""
        findings = list(proofs.of_money(account.domain, seen, me, account, ()))
        for finding in findings:
            self._log_finding(account.job, finding)
        text = f"{account.job}: worked for under protocol {account.protocol}, and this release has {PROTOCOL}: "
        text += "only its voucher was checked; `gradmarket wallet verify` of that release checks the rest."
        self.journal.report("other_release", text, job=account.job, protocol=account.protocol)
        return not findings

    def _find_record_faults(
        self, account: JobAccount, me: Address, seen: ChainHistory, kept: Sequence[ReplicaRecord]
    ) -> Iterator[Finding]:
        for record in kept:
            yield from proofs.of_record(account.domain, seen, me, record)
        yield from self._handed_over(account)
        paid = [record for record in kept if record.paid]
        settled = [record for record in paid if record.at + FRESH_S < self.clock()]
        yield from proofs.of_money(account.domain, seen, me, account, settled)
        yield from proofs.of_batches(seen, me, account, paid)

    def _handed_over(self, account: JobAccount) -> Iterator[Finding]:
        """Yields payloads that were sent and not judged: logged at first, and a broken promise once overdue."""
        for held in handed_over(self.settings.data):
            if held.instance != account.instance or held.offer.job != account.chain_job:
                continue
            shown = f"its bytes may have left, and no verdict has come; {proofs.describe_promise(held.promise)}"
            if held.due_at + OVERDUE_S < self.clock():
                yield Finding(Fault.BROKEN_PROMISE, held.replica, shown)
            else:
                self.journal.report("handed_over", f"{account.job}, {held.replica}: {shown}.", replica=held.replica)

    def _find_published_faults(
        self, account: JobAccount, me: Address, ledger: Ledger, seen: ChainHistory, kept: Sequence[ReplicaRecord]
    ) -> Iterator[Finding]:
        """Compares the records with the present publication of the job's market, or else with a mirror's."""
        receipts = self._load_receipts(account)
        if not self.ask or not kept:
            if self.ask and receipts:
                self._note_unproven(account, "its answers to a referee: no verdict names the market that has them")
            return
        market = MarketClient(kept[-1].market, keep_trying_for(MARKET_S))
        try:
            yield from held_against(market, account, me, seen, kept)
            yield from find_unlogged(market, account, me, seen, kept)
            check = ReceiptCheck(market, account, me, kept, receipts)
            check.read_evidence()
            yield from self._find_forks(market, account, ledger, seen)
            yield from self._find_hidden_answers(check, ledger, seen)
        except MarketError as error:
            text = f"{account.job}: its market was not asked: {error}"
            self.journal.report("market_silent", text, job=account.job)
            yield from self._find_mirrored_faults(account, me, seen, kept, receipts)
        finally:
            market.close()

    def _load_receipts(self, account: JobAccount) -> Sequence[KeptReceipt]:
        path = find_receipts_file(self.settings.data, Hash(account.instance), account.chain_job)
        try:
            loaded = load_receipts(path)
        except Refused as error:
            self._note_unproven(account, f"its answers to a referee: {error.detail}")
            return ()
        if loaded.unread:
            lines = "1 line" if loaded.unread == 1 else f"{loaded.unread} lines"
            text = f"{account.job}: {lines} of {path} cannot be read: a crash cut them short, or they were changed."
            self.journal.report("receipts", text, job=account.job, unread=loaded.unread)
        return loaded.receipts

    def _check_burns(
        self, account: JobAccount, seen: ChainHistory, kept: Sequence[ReplicaRecord], money: TokenUnit
    ) -> Iterator[Finding]:
        """Logs each burn, which the contract makes by a ruling alone, and yields those that its market cannot show.

        Where no market is asked, or answers, a burn is left in question: that is logged, and accuses nobody.
        """
        audits = self._fetch_audits(account, kept) if seen.burns else None
        for burn in seen.burns:
            case = "0x" + burn.case.hex()
            amount = convert_to_amount(burn.units, account)
            fault = "" if audits is None else proofs.describe_burn_fault(account.domain, burn, kept, audits)
            word = "IN QUESTION" if audits is None or fault else "about an answer of this worker's"
            text = f"{account.job}: {money.text(amount)} of its locked pay was burnt by a ruling, {word}: "
            text += f"`gradmarket wallet case examine {account.job} {case}` computes the task anew."
            facts = {"case": case, "amount": str(amount), "proven": audits is not None and not fault}
            self.journal.report("burnt", text, job=account.job, **facts)
            if fault:
                yield Finding(Fault.UNPROVEN_BURN, detail=f"{burn.units} units, case {case}: {fault}")

    def _fetch_audits(self, account: JobAccount, kept: Sequence[ReplicaRecord]) -> list[PublishedAudit] | None:
        """Returns the market's audits; None where no market is asked, or answers."""
        if not self.ask or not kept:
            return None
        market = MarketClient(kept[-1].market, keep_trying_for(MARKET_S))
        try:
            return list(market.audits(account.job))
        except MarketError:
            return None
        finally:
            market.close()

    def _find_forks(
        self, market: MarketClient, account: JobAccount, ledger: Ledger, seen: ChainHistory
    ) -> Iterator[Finding]:
        """Compares the log's head with those that this worker received before, in earlier runs too."""
        path = reported_heads.file_of(self.settings.data, Hash(account.instance), account.chain_job)
        all_heads = partial(fetch_heads, ledger, account.chain_job)
        times = partial(fetch_head_times, ledger, account.chain_job)
        check = HeadCheck(market, account.job, account.domain, seen.signer, path, all_heads, times, self.clock)
        yield from check.run([head for _, head in list_batch_heads(account, seen)])
        for text in dict.fromkeys(check.restored):
            self.journal.report("restored", f"{account.job}: {text}.", job=account.job)

    def _find_hidden_answers(self, check: ReceiptCheck, ledger: Ledger, seen: ChainHistory) -> Iterator[Finding]:
        account, market = check.account, check.market
        told = reported_heads.load_reported_heads(
            reported_heads.file_of(self.settings.data, Hash(account.instance), account.chain_job)
        )
        scope = ReceiptScope(account.domain, seen.signer, account.chain_job)
        if told and told[-1].head.restarts:
            head, carried = told[-1].head, fetch_heads(ledger, account.chain_job)
            leaves = list(market.leaves(account.job, head.size))
            restores = list(reported_heads.list_past_restores(head, leaves, carried, self.clock()))
            scope = replace(scope, leaves=leaves, restores=restores)
        yield from check.run(scope, told)
        if check.over and told:
            yield from find_unlogged_ends(market, account, check.me, told[-1].head.struct(), check.kept, scope.restores)
        for text in check.unproven:
            self._note_unproven(account, text)

    def _note_unproven(self, account: JobAccount, text: str) -> None:
        self.unproven.append(text)
        self.journal.report("unproven", f"{account.job}: not proven: {text}.", job=account.job)

    def _find_mirrored_faults(
        self,
        account: JobAccount,
        me: Address,
        seen: ChainHistory,
        kept: Sequence[ReplicaRecord],
        receipts: Sequence[KeptReceipt],
    ) -> Iterator[Finding]:
        if not self.mirrors:
            self._note_unproven(account, "what its market publishes: name a mirror of it (--mirror)")
            return
        with ExitStack() as stack:
            cache = Cache(self.settings.downloads, self.settings.max_disk)
            mirrors = [open_mirror(place, cache, stack) for place in self.mirrors]
            try:
                heads = dict(list_batch_heads(account, seen))
                found = check_by_mirrors(mirrors, account, me, seen, heads, kept, receipts)
            except MarketError as error:
                why = describe_trouble(error)
                self.journal.report("mirrors", f"{account.job}: no mirror serves it: {why}", job=account.job)
                self._note_unproven(account, "what its market publishes: name another mirror of it (--mirror)")
                return
        for text in found.facts:
            self.journal.report("mirror", f"{account.job}: {text}.", job=account.job)
        for text in found.unproven:
            self._note_unproven(account, text)
        yield from found.findings

    def _record_evidence(self, account_store: AccountStore, seen: ChainHistory, findings: Sequence[Finding]) -> None:
        """Records the faults that only the market's present answer shows; the head that proves it stays on-chain."""
        known = {line for signer, line in account_store.grievances() if signer == seen.signer}
        for finding in findings:
            line = f"{finding.fault.name.lower()} ({finding.about}): {finding.detail}"
            if finding.fault in SHOWN_NOW and line not in known:
                account_store.record_grievance(seen.signer, line)

    def _log_finding(self, job: JobId, finding: Finding) -> None:
        facts = {"fault": finding.fault.name.lower(), "job": job, "replica": finding.about or None}
        self.journal.report("fault", f"{job}, {finding}." if finding.about else f"{job}: {finding}.", **facts)

    def _log_job_summary(
        self,
        account: JobAccount,
        seen: ChainHistory,
        kept: Sequence[ReplicaRecord],
        faults: Sequence[Finding],
        money: TokenUnit,
    ) -> None:
        paid = [record for record in kept if record.paid]
        on = seen.account
        sums = {"vouchered": account.vouchered, "settled": on.settled, "redeemed": Units(on.withdrawn - seen.burnt)}
        amounts = ", ".join(f"{name} {money.text(convert_to_amount(units, account))}" for name, units in sums.items())
        text = f"{account.job}: {len(paid)} accepted, {sum(record.rejected for record in kept)} rejected; {amounts}; "
        if seen.burnt:
            text += f"burnt {money.text(convert_to_amount(seen.burnt, account))}; "
        text += f"{len(faults)} faults." if faults else "every signature, secret, commitment and batch proven."
        facts = {name: str(convert_to_amount(units, account)) for name, units in sums.items()}
        self.journal.report("job", text, job=account.job, accepted=len(paid), faults=len(faults), **facts)


def fetch_chain_history(ledger: Ledger, account: JobAccount, me: Address) -> ChainHistory:
    """Reads the job's history from this ledger's node. Raises ChainError."""
    opened = ChainView(ledger, me).opened(account.chain_job)
    numbers = sorted(events.batches_crediting(ledger, account.chain_job, me))
    batches = {
        number: (
            ledger.batch_root(account.chain_job, number),
            tuple(events.settled_groups(ledger, account.chain_job, number)),
        )
        for number in numbers
    }
    burns = events.vest_burns(ledger, account.chain_job, me) if opened.vest_window else []
    onchain = ledger.account(account.chain_job, me)
    return ChainHistory(opened.signer, opened.spec_digest, onchain, batches, tuple(burns))


def find_unlogged(
    market: MarketClient, account: JobAccount, me: Address, seen: ChainHistory, kept: Sequence[ReplicaRecord]
) -> Iterator[Finding]:
    """Yields accepted gradients whose verdicts are not in the log whose head the batch of their pay carries.

    It asks for the proofs of at most LOGGED of them, drawn anew each time, so none can be left out for long.
    """
    heads = dict(list_batch_heads(account, seen))
    paid = [record for record in kept if record.paid and record.verdict.outcome == Outcome.ACCEPTED]
    batches = proofs.map_to_batches(seen, me, paid)
    logged = [record for record in paid if batches.get(record.lease.replica) in heads]
    for record in random.SystemRandom().sample(logged, min(LOGGED, len(logged))):
        replica, head = record.lease.replica, heads[batches[record.lease.replica]]
        shown = fetch_leaf_proof(
            market, account.job, LeafKind.VERDICT, f"{replica}/{record.verdict.outcome}", head.size
        )
        if shown is None or not proofs.is_verdict_logged(account.domain, me, record, head, shown):
            why = "the market has no proof" if shown is None else "the market's proof leads to another root"
            batch = f"batch {batches[replica]}, root 0x{head.root.hex()} over {head.size} leaves"
            yield Finding(Fault.NOT_LOGGED, replica, f"{why}; {batch}")


def find_unlogged_ends(
    market: MarketClient,
    account: JobAccount,
    me: Address,
    head: LogHead,
    kept: Sequence[ReplicaRecord],
    restores: Sequence[PublishedRestart],
) -> Iterator[Finding]:
    """Yields failed attempts, which nothing changes any more, that the log of an ended job lacks.

    A signed verdict is looked up itself; where nothing was signed, as of an answer that was never judged, the attempt's
    signed offer. It asks for at most LOGGED, drawn anew; none of before a restore, which may have lost them.
    """
    ends = [
        record
        for record in kept
        if record.verdict.signature is None or record.verdict.outcome == Outcome.INCONCLUSIVE
        if all(restore.at + SKEW_S < record.at for restore in restores)
    ]
    for record in random.SystemRandom().sample(ends, min(LOGGED, len(ends))):
        kind, about, leaf = proofs.encode_last_signed(account.domain, me, record)
        shown = fetch_leaf_proof(market, account.job, kind, about, head.size)
        if shown is None or not is_included(leaf, shown.number, head.size, shown.path, head.root):
            log = f"the ended job's log, root 0x{head.root.hex()} over {head.size} leaves"
            yield Finding(Fault.NOT_LOGGED, record.lease.replica, f"{log}, lacks the failed attempt's {kind.value}")


def list_batch_heads(account: JobAccount, seen: ChainHistory) -> Iterator[tuple[int, LogHead]]:
    """Yields the heads of the job's log that the batches which credit this worker carry, by their numbers."""
    for number, (_, groups) in seen.batches.items():
        if (head := parse_head(account.chain_job, groups[-1])) is not None:
            yield number, head


def held_against(
    market: MarketClient, account: JobAccount, me: Address, seen: ChainHistory, kept: Sequence[ReplicaRecord]
) -> Iterator[Finding]:
    """Compares the published payments, verdicts and evidence. Raises MarketError if the market does not answer."""
    ours = {record.lease.replica for record in kept}
    payments = {
        item.replica for item in market.fetch_payments(account.job) if item.worker == me and item.replica in ours
    }
    published = market.verdicts(account.job)
    verdicts = {item.replica: item for item in published if item.worker == me and item.replica in ours}
    for record in kept:
        replica, received = record.lease.replica, record.verdict
        if record.paid and replica not in payments:
            yield Finding(Fault.MISSING_GRADIENT, replica, f"task {record.lease.task}")
        judged = verdicts.get(replica)
        signed = judged is not None and judged.signature is not None
        if judged and signed and (judged.outcome, judged.signature) != (received.outcome, received.signature):
            yield Finding(Fault.OTHER_VERDICT, replica, f"outcome {judged.outcome}, told {received.outcome}")
        if not record.rejected:
            continue
        # a rejection is proven by the published evidence, once it is shown
        publication = market.job(account.job).publication
        evidence = market.task(account.job, record.lease.task)
        if publication is None or hash_of(publication.digest) != seen.spec:
            yield Finding(Fault.OTHER_SPEC, replica, "the job that it publishes is not the one on-chain")
        elif evidence.committed:
            case = VerdictCase(account.domain, seen.signer, publication.checks, evidence)
            sealed = record.prepared.sealed if record.prepared else NO_ROOT
            for finding in of_rejection(case, received, digest_struct(account.domain, record.offer), me, sealed):
                where = ("in the evidence of its rejection", finding.about, finding.detail)
                yield Finding(finding.fault, replica, ", ".join(filter(None, where)))


def verify(
    rpc: RpcOption = None,
    data: DataOption = None,
    passphrase_file: PassphraseOption = None,
    market: Annotated[bool, typer.Option(help="Hold what the markets publish against the records, too.")] = True,
    mirror: Annotated[
        list[str] | None,
        typer.Option(help="Folder or address of a job's archive, read where its market is silent. Repeatable."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Prove everything anew by your own node: signatures, secrets, commitments, batches, vouchers, reservations.

    Names each lie of a requester, and ends with 1 if there is one, or a chain does not answer.
    """
    for place in mirror or ():
        check_place("--mirror", place)
    settings = add_wallet_passphrase(settings_of(rpc=rpc, data=data, passphrase_file=passphrase_file))
    sound = SelfCheck(settings, Journal(as_json), market, tuple(mirror or ())).run()
    raise typer.Exit(0 if sound else 1)
