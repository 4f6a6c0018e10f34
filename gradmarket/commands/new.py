"""`gradmarket new`: writes a training script and its settings, which run at once and are there to be changed."""

import json
from importlib.resources import files
from pathlib import Path
from shlex import quote
from typing import Annotated, Final

import typer

from gradmarket.commands.edge import JsonOption, print_json
from gradmarket.market.errors import Refused
from gradmarket.market.job_parts import DEFAULT_REPLICATION
from gradmarket.terminal import echo_text
from gradmarket.user_files import parse_place, write_all

STARTERS: Final = "gradmarket.starters"
SCRIPT, SETTINGS = "train.py", "settings.json"
SINGLE: Final = {"name": "fixed", "replicas": 1, "max_replicas": 1}
"""A replication that one worker is enough for."""


HOLDERS: Final = "holders"
"""The starter of a private job."""
SECURE: Final = {"may_collude": 1}
"""Additional fields of its `private` where rounds are summed under masks."""
PER_ROW: Final = {"clip_norm": 1.0, "noise_multiplier": 4.0, "epsilon": 8.0, "delta": 1e-3}
NOISED: Final = {"kind": "local", "rows": 64, "steps": 1, "per_row": PER_ROW, "optimizer": {"name": "sgd", "lr": 0.5}}
"""Its step where each row's gradient is clipped and noised: few steps of many rows, so that a row is used seldom."""


def list_starter_kinds() -> list[str]:
    found = (file.name.removesuffix(".json") for file in files(STARTERS).iterdir() if file.name.endswith(".json"))
    return sorted(set(found) - {HOLDERS})


def new(
    folder: Annotated[Path, typer.Argument(parser=parse_place, metavar="FOLDER", help="A new or empty folder.")],
    kind: Annotated[str, typer.Option("--for", help=f"Its data: {', '.join(list_starter_kinds())}.")] = "",
    private: Annotated[bool, typer.Option("--private", help="On rows that stay with their holders instead.")] = False,
    secure: Annotated[
        bool, typer.Option("--secure", help="With --private: you see the sum of a round's answers, and none of them.")
    ] = False,
    per_row: Annotated[
        bool, typer.Option("--per-row", help="With --private: holders noise their steps, so that no row is disclosed.")
    ] = False,
    alone: Annotated[
        bool, typer.Option("--alone", help="One replica a task: one worker is enough, and nobody checks it.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a training script and its settings into a folder: it runs at once on bundled data, or on yours."""
    if (secure or per_row) and (kind or not private):
        raise Refused(
            "--secure and --per-row apply to rows that stay with their holders", "add --private, without --for"
        )
    if private and kind:
        raise Refused("--private has a starter of its own, and --for names another", "leave out --for, or --private")
    if private:
        kind = HOLDERS
    elif kind not in list_starter_kinds():
        raise Refused(f"--for {kind[:80]!r} is none of {', '.join(list_starter_kinds())}", "choose one of them")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Refused(f"{folder} exists and is not an empty folder", "name a new folder")
    job = json.loads((files(STARTERS) / f"{kind}.json").read_text())
    job |= {"replication": SINGLE} if alone else {}
    job |= {"private": job["private"] | {"secure_aggregation": SECURE}} if secure else {}
    job |= {"step": NOISED} if per_row else {}
    text = json.dumps(job, indent=2) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    write_all({folder / SCRIPT: (files(STARTERS) / f"{kind}.py").read_text(), folder / SETTINGS: text})
    workers = job["replication"]["replicas"] if "replication" in job else DEFAULT_REPLICATION.replicas
    if as_json:
        print_json({"script": str(folder / SCRIPT), "settings": str(folder / SETTINGS), "workers": workers})
        return
    hire = "gradmarket worker run --market http://127.0.0.1:8700 --data worker-"
    commands = ["gradmarket serve --data data", *(f"{hire}{number + 1}" for number in range(0 if private else workers))]
    echo_text(f"Wrote {folder / SCRIPT} and {folder / SETTINGS}.")
    echo_text("Without a market, start one here, each in a terminal:")
    for command in commands:
        echo_text(f"  {command}")
    echo_text(f"Then train:\n  python {quote(str(folder / SCRIPT))}")
