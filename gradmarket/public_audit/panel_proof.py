"""The clause of panels: as many auditors as the job names sealed and signed the answer that an audit found. Pure.

The record of an ended job proves that each shown answer opens a seal that its auditor signed, and that no auditor sat
twice; that all had sealed before any saw another's answer is the word of the service and of the auditors. Seals are
leaves of the job's log: an auditor finds its own there and in the record, and a logged one convicts the service that
hides it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gradmarket.market.features.auditors import find_proven_answer, is_seal_signed
from gradmarket.market.features.disputes import refereed
from gradmarket.market.features.disputes.refereed import Heard
from gradmarket.market.features.log.job_log import encode_seal
from gradmarket.market.features.log.merkle import hash_leaf
from gradmarket.market.job_parts import AuditPanel
from gradmarket.market.signing import Domain
from gradmarket.market.terms import Address, Digest, Hash
from gradmarket.market.wire.audit_messages import KeptSeal
from gradmarket.market.wire.evidence import PublishedAudit
from gradmarket.market.wire.hearing_messages import PublishedHearing
from gradmarket.public_audit.audit_report import describe_count
from gradmarket.public_audit.job_proof import Clause, ClauseFinding, ClauseResult, JobRecord

ORDER = "that each panel had sealed all its answers before one was opened, as the service says"


def prove_panels(record: JobRecord, seals: Sequence[KeptSeal] = ()) -> list[ClauseResult]:
    """Returns the result of the clause; none for a job without panels. `seals`: of auditors that have kept theirs."""
    panel = record.publication.spec.panel
    if panel is None:
        return []
    faults, count, hidden = list[ClauseFinding](), 0, 0
    for task, shown in record.evidence.items():
        audit = shown.audit
        if audit is None or audit.root is None:
            continue
        hidden += audit.panel is None
        count += audit.panel is not None
        heard = shown.hearings or ()
        found_faults = (
            () if audit.panel is None else find_panel_faults(record.domain, shown.offer_digest, audit, panel, heard)
        )
        faults += (ClauseFinding(Clause.PANELS, f"the audit of task {task}", why) for why in found_faults)
    seal_faults, unproven = _compare_seals(record, seals)
    unseen = [f"the panels of {hidden} audits, which are not shown"] if hidden else []
    if unproven:
        unseen.append(f"{describe_count(unproven, 'seals')} that the log lacks, or of audits that are not over")
    unseen += [ORDER] if count else []
    return [ClauseResult(Clause.PANELS, count, "audits", (*faults, *seal_faults), tuple(unseen))]


def _compare_seals(record: JobRecord, seals: Iterable[KeptSeal]) -> tuple[list[ClauseFinding], int]:
    """Looks kept seals up in the evidence and in the log; returns the logged ones that are hidden, and the number of
    seals that show nothing: anybody can sign one, and the log alone proves that the service took it."""
    by_offer = {shown.offer_digest: shown for shown in record.evidence.values()}
    leaves, faults, unproven = frozenset(record.log.leaves), list[ClauseFinding](), 0
    for kept in dict.fromkeys(one for one in seals if one.job == record.opened.job):
        shown = by_offer.get(kept.offer)
        audit = None if shown is None else shown.audit
        is_over = audit is None or audit.root is not None or audit.panel is not None
        leaf = hash_leaf(encode_seal(kept.offer, kept.signer, kept.run, kept.sealed, kept.signature))
        own = kept.signer, kept.run, kept.sealed
        if own in {(seat.signer, seat.run, seat.sealed) for seat in (None if audit is None else audit.panel) or ()}:
            continue  # the log is searched for every seal that is shown
        if leaf in leaves and is_over:
            why = f"the log has the seal of {kept.signer} in run {kept.run} of its audit, which is hidden"
            faults.append(ClauseFinding(Clause.PANELS, f"task {kept.task}", why))
        else:
            unproven += 1
    return faults, unproven


def find_panel_faults(
    domain: Domain, offer: Hash, audit: PublishedAudit, panel: AuditPanel, hearings: Iterable[PublishedHearing] = ()
) -> Iterator[str]:
    """Finds seals that nobody signed, answers that open none, auditors that sat twice, hearings of others, and a
    result that too few found, where no referee heard it to be the one that stands."""
    by_run = defaultdict[int, list[tuple[Address, Digest]]](list)
    for seat in audit.panel or ():
        if seat.root is None:
            if seat.sealed is not None and not is_seal_signed(domain, offer, seat):
                yield f"the seal of {seat.signer} in run {seat.run} is not signed by it"
            continue
        proven = find_proven_answer(domain, offer, seat)
        if proven is None:
            yield f"the answer of {seat.signer} in run {seat.run} opens no seal that it signed"
        else:
            by_run[seat.run].append(proven)
    for run, answers in by_run.items():
        for signer, times in Counter(signer for signer, _ in answers).items():
            if times > 1:
                yield f"{signer} answered {times} times in run {run}"
    agreed = max((len({who for who, root in each if root == audit.root}) for each in by_run.values()), default=0)
    yield from _find_result_faults(audit, panel, by_run, agreed, hearings)


def _find_result_faults(
    audit: PublishedAudit,
    panel: AuditPanel,
    by_run: Mapping[int, list[tuple[Address, Digest]]],
    agreed: int,
    hearings: Iterable[PublishedHearing],
) -> Iterator[str]:
    heard = defaultdict[int, list[Heard]](list)
    for one in hearings:
        if one.run is not None and one.ruling is not None:
            heard[one.run].append(Heard(one.sides, one.ruling.wrong, one.roots))
    for run, each in heard.items():
        yield from refereed.find_heard_faults(dict(by_run.get(run, ())), each)
    last = max(by_run, default=-1)
    standing = refereed.find_standing_root(dict(by_run[last]), heard[last]) if heard[last] else None
    if standing is not None and standing != audit.root:
        yield f"it found {audit.root}, and {standing} stands alone before its referee"
    elif agreed < panel.agree and standing is None:
        yield f"it found {audit.root}, which {agreed} auditors answered, and the job asks for {panel.agree}"
