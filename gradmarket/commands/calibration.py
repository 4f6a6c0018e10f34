"""`gradmarket job calibration`: the allowed deviation between honest answers of two classes, and its evidence."""

from typing import Final

from rich.markup import escape
from rich.table import Column, Table

from gradmarket.commands.edge import DataOption, JobArgument, JsonOption, MarketOption, print_json
from gradmarket.endpoint import find_endpoint
from gradmarket.market.terms import CalibrationState
from gradmarket.terminal import ShownConsole

WHY_NOT: Final = "Only a job whose verifier is tolerance has thresholds; this one's is {verifier}."
NONE_YET: Final = "No task was computed in two classes yet: run gradmarket auditor on a machine of each."


def calibration(
    job: JobArgument, market: MarketOption = None, data: DataOption = None, as_json: JsonOption = False
) -> None:
    """A job's thresholds: each pair of classes, how many trusted runs it has, and each tensor's largest deviation."""
    with find_endpoint(market, None, data).market() as client:
        report = client.calibration(job)
    if as_json:
        print_json(report)
        return
    console = ShownConsole()
    if report.family is None:
        console.print(WHY_NOT.format(verifier=report.verifier), soft_wrap=True)
    elif not report.pairs:
        console.print(NONE_YET, soft_wrap=True)
    for pair in report.pairs:
        one, other = pair.classes
        needed = f" of {pair.runs_needed}" if pair.state is CalibrationState.GATHERING else ""
        sure = f"95 % of honest runs lie below the largest with confidence {pair.confidence:.3f}"
        why = f" ({pair.reason})" if pair.reason else ""
        newest = ", ".join(task.task for task in pair.tasks[:3])
        console.print(
            f"{one}\n{other}\n{pair.state}{why}: {pair.runs}{needed} runs, {sure}; the newest: {newest}",
            soft_wrap=True,
            markup=False,
            highlight=False,
        )
        table = Table(
            Column("tensor", no_wrap=True), *(Column(name, justify="right") for name in ("largest", "threshold"))
        )
        for tensor in pair.tensors:
            table.add_row(escape(tensor.name), f"{tensor.largest:.2e}", f"{tensor.threshold:.2e}")
        console.print(table)
