"""`gradmarket audit` and `gradmarket archive`: check a whole job from public data, and archive that data."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from gradmarket.archives.archive_index import INDEX
from gradmarket.archives.mirrors import check_place
from gradmarket.commands.edge import JsonOption, print_json
from gradmarket.compute.own_machine import AUTO, device_name
from gradmarket.market.errors import Refused
from gradmarket.network.environment import is_address
from gradmarket.public_audit.audit_report import describe_count
from gradmarket.public_audit.audit_run import SAMPLE, AuditPlan, archive_job, audit_job
from gradmarket.public_audit.job_records import Progress
from gradmarket.terminal import echo_text
from gradmarket.user_files import check_writable, parse_place, write_all
from worker.features.disputes.kept_receipts import LoadedReceipts, load_receipts

FOLDER: Final = Path.home() / ".gradmarket" / "audits"
INCOMPLETE: Final = 3
"""Exit status where --all could not compute all."""
EVERY_S: Final = 2.0
"""Seconds between two lines of progress."""


def audit(
    market: Annotated[str, typer.Argument(metavar="MARKET", help="Address of the service, or an archive.json's.")],
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job's id.")],
    rpc: Annotated[str | None, typer.Option(help="Your own node of the market's chain; else a local market's.")] = None,
    sample: Annotated[int, typer.Option(min=0, help="Merged tasks to compute again, drawn at random.")] = SAMPLE,
    whole: Annotated[bool, typer.Option("--all", help="Compute every merged task, and merge every round.")] = False,
    folder: Annotated[Path, typer.Option(help="Keeps downloads and results, to go on after a break.")] = FOLDER,
    report: Annotated[Path | None, typer.Option(help="File for the report: a page (.html), else JSON.")] = None,
    device: Annotated[str, typer.Option(help="Device: auto, cpu, or cuda; part of the class.")] = AUTO,
    threads: Annotated[int | None, typer.Option(min=1, max=256, help="Threads of a step; else the job's.")] = None,
    mirror: Annotated[
        list[str] | None, typer.Option(help="Folder or address of an archive; serves what MARKET does not. Repeatable.")
    ] = None,
    claims: Annotated[
        int | None, typer.Option("--round", min=0, help="Claim this round: prove that you computed it, in public.")
    ] = None,
    receipts: Annotated[
        list[Path] | None,
        typer.Option(help="File of receipts or seals that a side of its hearings has kept. Repeatable."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check a whole job by public data: every signature, vote, draw, round and payment; and compute gradients again.

    Ends with 1 where a rule does not hold, and with 3 where --all or --round could not. Audits jobs that have ended.
    """
    try:
        device_name(device)
    except ValueError as error:
        raise Refused(f"--device: {error}") from error
    _check_places(market, rpc, mirror or ())
    if report is not None:
        check_writable(report)
    loaded = list[LoadedReceipts]()
    for path in receipts or ():
        remedy = "name a file of a side's `receipts` folder"
        if not path.is_file():
            raise Refused(f"{path} is a folder" if path.is_dir() else f"{path} is not there", remedy)
        each = load_receipts(path)
        if not each.receipts and not each.seals:
            raise Refused(f"{path} has no receipts", remedy)
        if each.unread:
            lines = describe_count(each.unread, "lines")
            echo_text(f"{path}: {lines} cannot be read, and nothing is known of them", err=True)
        loaded.append(each)
    kept = tuple(one for each in loaded for one in each.receipts)
    seals = tuple(one for each in loaded for one in each.seals)
    plan = AuditPlan(market, job, folder, rpc, sample, whole, device, threads, tuple(mirror or ()), claims, kept, seals)
    done = audit_job(plan, _build_progress(as_json))
    if report is not None:
        page = report.suffix.lower() in (".html", ".htm")
        write_all({report: done.as_page() if page else json.dumps(done.as_json(), indent=2) + "\n"})
    if as_json:
        print_json(done.as_json())
    else:
        echo_text("\n".join(done.as_lines()))
    missed = done.missed_claim or (whole and not done.complete)
    raise typer.Exit(1 if not done.sound else INCOMPLETE if missed else 0)


def archive(
    market: Annotated[str, typer.Argument(metavar="MARKET", help="Address of the market's service.")],
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job's id.")],
    to: Annotated[
        Path,
        typer.Argument(parser=parse_place, metavar="FOLDER", help="Folder to write to; its files are kept."),
    ],
    rpc: Annotated[str | None, typer.Option(help="Your own node of the market's chain; else a local market's.")] = None,
    folder: Annotated[Path, typer.Option(help="Keeps downloads, to go on after a break.")] = FOLDER,
    as_json: JsonOption = False,
) -> None:
    """Write all that an audit of a job needs into a folder, for any static server: it outlives the service.

    `gradmarket audit FOLDER/archive.json JOB`, or the address that it is served at, audits by it.
    """
    _check_places(market, rpc)
    if file := next((each for each in (to, *to.parents) if each.is_file()), None):
        raise Refused(f"{file} is a file", "name a folder")
    done, digest = archive_job(AuditPlan(market, job, folder, rpc), to, _build_progress(as_json))
    report = {"job": done.listed.id, "tasks": len(done.record.evidence), "archive": str(to / INDEX), "digest": digest}
    if as_json:
        print_json(report)
    else:
        echo_text(f"{report['archive']}: {describe_count(len(done.record.evidence), 'tasks')} of job {job}; {digest}")


def _check_places(market: str, rpc: str | None, mirrors: Sequence[str] = ()) -> None:
    if market.strip() and not is_address(market) and not Path(market).is_dir() and not market.endswith(INDEX):
        fix = f"write it like http://127.0.0.1:8700, or name a file {INDEX}"
        raise Refused(f"{market[:200]!r} is not the address of a service", fix)
    for name, place in (("MARKET", market), *(("--mirror", one) for one in mirrors)):
        check_place(name, place)
    if Path(market).is_dir():
        raise Refused(f"{market[:200]} is the folder of an archive", f"name {Path(market) / INDEX}")
    if rpc is not None and not is_address(rpc):
        raise Refused(
            f"--rpc: {rpc[:200]!r} is not the address of a chain's node", "write it like http://127.0.0.1:8545"
        )


def _build_progress(quiet: bool) -> Progress:
    """Returns a function that prints a line at the last item, and every EVERY_S seconds before."""
    shown_at = time.monotonic()

    def show(subject: str, done: int, of: int) -> None:
        nonlocal shown_at
        if not quiet and (done == of or time.monotonic() - shown_at > EVERY_S):
            shown_at = time.monotonic()
            echo_text(f"{subject}: {done} of {of}", err=True)

    return show
