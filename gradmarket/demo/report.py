"""The demo's report: a table for people, and the same as JSON."""

from typing import Any

from rich.console import Console
from rich.table import Table

from gradmarket.demo.demo_outcome import DemoOutcome, Pay, find_accuracy
from gradmarket.market.money import TokenUnit
from gradmarket.market.wire.sign_in import ChainFacts


def build_report(outcome: DemoOutcome, chain: ChainFacts, seconds: dict[str, float]) -> dict[str, Any]:
    """Returns the report as JSON: amounts are decimal strings in smallest units; counts are of replicas."""
    stats, escrow = outcome.stats, outcome.escrow
    return {
        "ok": all(outcome.checks.values()),
        "job": outcome.job.id,
        "rounds": outcome.job.round + 1 if outcome.job.round is not None else 0,
        "accuracy": find_accuracy(outcome.job),
        "chain_id": chain.chain_id,
        "contract": chain.contract,
        "token": chain.token,
        "escrow": {
            "deposited": str(escrow.deposited),
            "paid": str(escrow.paid),
            "refunded": str(escrow.refunded),
        },
        "accepted": stats.accepted,
        "rejected": stats.rejected,
        "parameters_digest": outcome.served,
        "workers": [
            {
                "address": pay.address,
                "behaviour": pay.behaviour,
                "accepted": pay.accepted,
                "rejected": pay.rejected,
                "earned": str(pay.earned),
                "balance": str(pay.balance),
            }
            for pay in outcome.workers
        ],
        "payload_bytes": stats.payload_bytes,
        "uploads": stats.uploads,
        "tasks": stats.tasks,
        "seconds": {**{name: round(value, 3) for name, value in seconds.items()}, "compute": stats.compute_seconds},
        "settlements": [
            {"tx": batch.tx, "gas": batch.gas, "gradients": batch.gradients} for batch in stats.settlements
        ],
        "checks": outcome.checks,
    }


def print_report(console: Console, outcome: DemoOutcome, token: TokenUnit) -> None:
    workers = outcome.workers
    table = Table("worker", "behaviour", "accepted", "rejected", "earned", "balance on-chain")
    for pay in workers:
        figures = (str(pay.accepted), str(pay.rejected), token.text(pay.earned), token.text(pay.balance))
        table.add_row(_shorten_address(pay), pay.behaviour, *figures)
    console.print(table)
    reasons = ((pay, why, count) for pay in outcome.workers for why, count in pay.why.items())
    for line in (
        "rejected, with the evidence in GET /v1/jobs/{id}/verdicts:",
        *[f"{_shorten_address(pay)} {pay.behaviour}: {count} x {why}" for pay, why, count in reasons],
    ):
        console.print(line, highlight=False, soft_wrap=True)
    escrow = outcome.escrow
    sums = (f"{name} {token.text(value)}" for name, value in (("deposited", escrow.deposited), ("paid", escrow.paid)))
    console.print(f"escrow: {', '.join(sums)}, refunded {token.text(escrow.refunded)}", highlight=False)
    console.print(f"parameters: {outcome.served}", highlight=False, soft_wrap=True)
    for name, held in outcome.checks.items():
        console.print(f"  [{'green' if held else 'bold red'}]{'yes' if held else 'NO '}[/] {name}", highlight=False)


def _shorten_address(pay: Pay) -> str:
    return f"{pay.address[:8]}…"
