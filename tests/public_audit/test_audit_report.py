"""The report of a public audit reads as sentences do, on a phone too."""

from gradmarket.public_audit.audit_report import AuditReport, describe_count
from gradmarket.public_audit.job_proof import Clause, ClauseFinding, ClauseResult


def test_one_thing_is_counted_as_one_and_an_empty_cell_has_no_label() -> None:
    fault = ClauseFinding(Clause.VERDICTS, "task t", "it has <another> root")
    results = [
        ClauseResult(Clause.BATCHES, 1, "batches"),
        ClauseResult(Clause.VERDICTS, 3, "tasks", (fault,)),
        ClauseResult(Clause.LOG, 1, "leaves"),
    ]
    report = AuditReport(
        market="http://m", job="j", name="n", state="finished", node="http://n", chain="chain 1", own_node=False,
        whole=False, results=results, seconds=1.0, troubles=["http://m/a: <other> bytes"],
    )  # fmt: skip
    page, lines = report.as_page(), list(report.as_lines())
    assert "1 batch<" in page
    assert "1 leaf<" in page
    assert page.count('data-label="Details"') == 1
    assert "it has &lt;another&gt; root" in page
    assert "A mirror failed: http://m/a: &lt;other&gt; bytes" in page
    assert "A mirror failed: http://m/a: <other> bytes" in lines
    assert lines[-1] == "1 fault."
    assert lines[0].endswith("(1 batch)")
    assert describe_count(0, "payments") == "0 payments"
