"""The report of a public audit: proven, merely consistent and unseen parts, as JSON, page or lines."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from markupsafe import Markup

from gradmarket.pages import ASSETS, Templates
from gradmarket.public_audit.job_proof import ON_CHAIN, Clause, ClauseResult

PROVEN: Final = "proven"
CONSISTENT: Final = "consistent"
FAULTY: Final = "faulty"
UNSEEN: Final = "not seen"
SINGULAR: Final = {"batches": "batch", "leaves": "leaf"}


@dataclass(frozen=True)
class AuditReport:
    """`own_node`: whether the chain was read by a node that the market does not name."""

    market: str
    job: str
    name: str
    state: str
    node: str
    chain: str
    """Chain, contract and token of the job's money."""
    own_node: bool
    whole: bool
    """Whether all was to be computed again."""
    results: Sequence[ClauseResult]
    seconds: float
    troubles: Sequence[str] = ()
    """Blobs that mirrors failed to serve."""

    @property
    def complete(self) -> bool:
        """Whether each clause was looked at, and every round where all was to be computed again."""
        counts = {result.rule: result.checked for result in self.results}
        replayed = not self.whole or counts.get(Clause.UPDATES, 0) == counts[Clause.ROUNDS]
        return replayed and all(counts.values())

    @property
    def missed_claim(self) -> bool:
        """Whether a round was to be claimed, and was not."""
        return any(result.rule is Clause.CLAIMS and result.unseen for result in self.results)

    @property
    def sound(self) -> bool:
        return not any(result.faults for result in self.results)

    def judge_rule(self, result: ClauseResult) -> str:
        """Returns the audit's verdict on a rule: `consistent` where it rests on the market's own word for the chain."""
        if result.faults:
            return FAULTY
        if not result.checked:
            return UNSEEN
        return CONSISTENT if result.rule in ON_CHAIN and not self.own_node else PROVEN

    def as_json(self) -> dict[str, Any]:
        return {
            "market": self.market,
            "job": self.job,
            "name": self.name,
            "state": self.state,
            "node": self.node,
            "own_node": self.own_node,
            "chain": self.chain,
            "sound": self.sound,
            "complete": self.complete,
            "seconds": round(self.seconds, 1),
            "mirrors": list(self.troubles),
            "rules": [
                {
                    "rule": result.rule.name.lower(),
                    "says": str(result.rule),
                    "result": self.judge_rule(result),
                    "checked": result.checked,
                    "things": result.things,
                    "faults": [{"about": fault.about, "detail": fault.detail} for fault in result.faults],
                    "unseen": list(result.unseen),
                }
                for result in self.results
            ],
        }

    def as_lines(self) -> Iterator[str]:
        for result in self.results:
            yield f"{self.judge_rule(result):<10} {result.rule} ({describe_count(result.checked, result.things)})"
            yield from (f"           {fault}" for fault in result.faults)
            yield from (f"           not seen: {unseen}" for unseen in result.unseen)
        yield from (f"A mirror failed: {trouble}" for trouble in self.troubles)
        if not self.own_node:
            yield f"The chain is as {self.node} tells it, which the market names: use a node of your own (--rpc)."
        faults = sum(len(result.faults) for result in self.results)
        yield f"The money is of {self.chain}."
        yield (
            f"{describe_count(faults, 'faults')}."
            if faults
            else f"No fault{'' if self.complete else ' in what was seen; it is incomplete'}."
        )

    def as_page(self) -> str:
        """Returns a page of HTML that stands alone."""
        style, report = (ASSETS / "page.css").read_text(), self.as_json()
        for rule in report["rules"]:
            rule["looked_at"] = describe_count(rule["checked"], rule["things"])
        return Templates(Path(__file__).parent).render("audit_report.html", style=Markup(style), report=report)


def describe_count(count: int, things: str) -> str:
    """Returns the number of a rule's subjects, in words."""
    return f"{count} {SINGULAR.get(things, things.removesuffix('s')) if count == 1 else things}"
