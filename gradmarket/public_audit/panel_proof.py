"""The clause of panels: as many auditors as the job names sealed and signed the answer that an audit found. Pure.

The record of an ended job proves that each shown answer opens a seal that its auditor signed, and that no auditor sat
twice; that all had sealed before any saw another's answer is the word of the service and of the auditors.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

from gradmarket.market.features.auditors import find_proven_answer, is_published_seal_signed
from gradmarket.market.features.disputes import refereed
from gradmarket.market.features.disputes.refereed import Heard
from gradmarket.market.job_parts import AuditPanel
from gradmarket.market.signing import Domain
from gradmarket.market.terms import Address, Digest, Hash
from gradmarket.market.wire.evidence import PublishedAudit
from gradmarket.market.wire.hearing_messages import PublishedHearing
from gradmarket.public_audit.job_proof import Clause, ClauseFinding, ClauseResult, JobRecord

ORDER = "that each panel had sealed all its answers before one was opened, as the service says"


def prove_panels(record: JobRecord) -> list[ClauseResult]:
    """Returns the result of the clause; none for a job without panels."""
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
    unseen = [f"the panels of {hidden} audits, which are not shown"] if hidden else []
    return [ClauseResult(Clause.PANELS, count, "audits", tuple(faults), (*unseen, *([ORDER] if count else [])))]


def find_panel_faults(
    domain: Domain, offer: Hash, audit: PublishedAudit, panel: AuditPanel, hearings: Iterable[PublishedHearing] = ()
) -> Iterator[str]:
    """Finds seals that nobody signed, answers that open none, auditors that sat twice, hearings of others, and a
    result that too few found, where no referee heard it to be the one that stands."""
    by_run = defaultdict[int, list[tuple[Address, Digest]]](list)
    for seat in audit.panel or ():
        if seat.root is None:
            if seat.sealed is not None and not is_published_seal_signed(domain, offer, seat):
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
