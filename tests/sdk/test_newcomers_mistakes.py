"""The mistakes of a researcher's first days, replayed: each is refused in one sentence with its remedy.

None of them creates or loses a job, token or webhook. Modules, losses and rows that cannot be sent have
test_first_mistakes.py, and every option of every command tests/e2e/test_mistakes.py.
"""

import html
import json
import re
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import httpx
import numpy as np
import pytest
import typer
from torch import nn
from typer.testing import CliRunner

from gradmarket import Images, Market, Text
from gradmarket.demo.service import Service
from gradmarket.market.errors import MarketError
from gradmarket.mistakes import CODE
from gradmarket.sdk.sweep import Sweep
from release.__main__ import main as release
from tests.kit.torch_tests import TRACING
from tests.lanes import leave_to_full
from tests.patience import wait_until
from tests.sdk.newcomer import (
    ABSENT,
    INFINITE,
    PROSE,
    SGD,
    WHOLE,
    Newcomer,
    Try,
    X,
    Y,
    cli,
    failing,
    file,
    form,
    many,
    pack,
    post,
    rest,
    run_public_command,
    word,
)
from tests.sdk.test_train import QUIET
from tests.town import ALONE

pytestmark = TRACING
RELEASE: Final = typer.Typer()
RELEASE.command()(release)
LONGEST_TRACE: Final = 50
"""Lines of a refusal's traceback: the way from the script to the sentence."""

ARGUMENTS: Final[dict[str, tuple[Try, str]]] = {
    "no rounds": (lambda d: d.train(rounds=0), "rounds: Input should be greater than"),
    "rounds as a word": (lambda d: d.train(rounds="many"), "rounds: Input should be a valid"),
    "rounds as a fraction": (lambda d: d.train(rounds=1.5), "rounds: Input should be a valid"),
    "a price without unit": (lambda d: d.train(price=0.01), "is no amount: write it like"),
    "a price in dollars": (lambda d: d.train(price="1 USD"), "is no amount: write it like"),
    "a negative price": (lambda d: d.train(price=-1), "price: no amount: write it like"),
    "a budget below a round": (lambda d: d.train(budget="1"), "budget: it pays for no round: name"),
    "a seed below zero": (lambda d: d.train(seed=-1), "seed: Input should be greater than or"),
    "a seed as a word": (lambda d: d.train(seed="one"), "seed: Input should be a valid"),
    "rows as a word": (lambda d: d.train(rows="all"), "step.rows: Input should be a valid"),
    "no rows": (lambda d: d.train(rows=0), "step.rows: Input should be greater"),
    "a format of another kind": (
        lambda d: d.train(partition_format="zip"),
        "partition_format: there is no 'zip': choose one of jsonl, npy",
    ),
    "a target that is no column": (
        lambda d: d.train({"a": X, "y": Y}, target="z"),
        "there is no column z; the columns are a, y",
    ),
    "one array": (lambda d: d.train(X), "a dataset is a pair (x, y), a"),
    "arrays of unlike lengths": (lambda d: d.train((X, Y[:5])), "the inputs differ in their number of rows"),
    "a path to nothing": (lambda d: d.train("nowhere.csv"), "there is no nowhere.csv"),
    "an epoch": (lambda d: d.train(epochs=3), "epochs: no such field; the fields are name"),
    "a batch": (lambda d: d.train(batch_size=3), "batch_size: no such field; the fields are"),
    "visibility of another kind": (lambda d: d.train(visibility="secret"), "visibility: Input should be"),
    "all rows held out": (lambda d: d.train(held_out=1.0), "held_out: give a fraction from 0 to"),
    "a plan without speed": (lambda d: d.plan(tflops=0), "tflops: give a number above 0, not"),
    "a plan of negative speed": (lambda d: d.plan(mbit=-1), "mbit: give a number above 0, not"),
    "a plan of no workers": (lambda d: d.plan(workers=0), "workers: give a number above 0, not"),
    "a plan by a url": (lambda d: d.plan(market="http://127.0.0.1"), "market: give a Market, such as"),
    "an address of another kind": (lambda _desk: Market("nowhere"), "is not the address of a service write"),
    "an address that is a number": (lambda _desk: Market(8700), "is not the address of a service write"),
    "a token that is a number": (lambda d: Market(d.url, 5), "the token is not an API token copy it"),
    "a token of two lines": (lambda d: Market(d.url, "a\nb"), "the token is not an API token copy it"),
    "a wrong token": (
        lambda d: replace(d, market=Market(d.url, "wrong")).train(),
        "this token is not known here, or ended: `gradmarket token create`",
    ),
    "no job of this id": (lambda d: d.market.job(ABSENT), "no job 0000000000000000 check the id"),
    "an id of another kind": (lambda d: d.market.job("../../secret"), "Not Found check the id; lists have"),
    "an id that is a number": (lambda d: d.market.job(5), "s id is a word, not a int give job.id"),
    "a state of another kind": (lambda d: list(d.market.jobs(state="done")), "state: Input should be"),
    "a tag of two words": (lambda d: list(d.market.jobs(tag="two words")), "tag: a tag is one word: letters"),
}
MEASURING: Final[dict[str, tuple[Try, str]]] = {
    "a metric that nobody has": (lambda d: d.train(metrics=["auroc"]), "there is no metric"),
    "a metric as a word": (lambda d: d.train(metrics="auc"), "metrics: give a list, such as ["),
    "metrics that are none": (lambda d: d.train(metrics=None), "metrics: give a list, such as ["),
    "a number as a metric": (lambda d: d.train(metrics=[5]), "metrics: a int is no metric: give a"),
    "a metric twice": (lambda d: d.train(metrics=["auc", "auc"]), "metrics: auc stands there twice: name"),
    "a metric without a name": (
        lambda d: d.train(metrics=[lambda answer, _y: answer.sum()]),
        "metrics: a function without a name of",
    ),
    "the loss as a metric": (lambda d: d.train(metrics=["loss"]), "metrics: loss is measured of every"),
    "a metric that fails": (lambda d: d.train(metrics=[failing]), "the model cannot be traced"),
    "a metric of many numbers": (lambda d: d.train(metrics=[many]), "metrics: many gives a tensor of (s98"),
    "a metric of a word": (lambda d: d.train(metrics=[word]), "metrics: word gives a str: return a"),
    "a rule that is none": (lambda d: d.train(stop="auc = 0.9"), "is no rule: write one like"),
    "a rule as a number": (lambda d: d.train(stop=5), "stop: a int is no rule: write one like"),
    "a rule of a number": (lambda d: d.train(stop=[5]), "is no rule: write one like"),
    "a rule of an unknown field": (
        lambda d: d.train(stop=[{"metric": "loss", "below": 1}]),
        "stop.0.at: Field required",
    ),
    "a rule of no metric": (lambda d: d.train(stop="f2 > 0.9"), "stop: nothing measures"),
    "a date without a zone": (
        lambda d: d.train(stop=[{"date": "2026-12-01"}]),
        "stop.0.date: a time needs a zone, e.g.",
    ),
    "no patience": (lambda d: d.train(patience=0), "stop.0.patience: Input should be"),
    "patience as a word": (lambda d: d.train(patience="little"), "stop.0.patience: Input should be a"),
    "nothing to measure on": (lambda d: d.train(held_out=0, patience=3), "metrics: nothing is held out to"),
    "validation of a word": (lambda d: d.train(validation="rows.csv"), "there is no rows.csv"),
    "validation of a number": (lambda d: d.train(validation=5), "validation: a dataset is a pair (x"),
    "narrow validation": (lambda d: d.train(validation=(X[:, :3], Y)), "validation: x is float32[3] a row"),
    "an unknown field of evaluation": (
        lambda d: d.train(evaluation={"metrik": "loss"}),
        "evaluation.metrik: no such field; did",
    ),
}
SWEEPS: Final[dict[str, tuple[Try, str]]] = {
    "an empty grid": (lambda d: d.sweep({}), "grid: give a mapping of arguments to"),
    "a grid as a list": (lambda d: d.sweep([1, 2]), "grid: give a mapping of arguments to"),
    "a grid of no list": (lambda d: d.sweep({"rows": 3}), "grid: rows needs a list of values"),
    "a grid of nothing": (lambda d: d.sweep({"rows": []}), "rows needs a list of values, such as"),
    "a grid by numbers": (lambda d: d.sweep({1: [2]}), "grid: 1 is no argument"),
    "a grid of arrays": (
        lambda d: d.sweep({"optimizer.lr": np.array([0.1, 0.2])}),
        "optimizer.lr needs a list of values",
    ),
    "too large a grid": (lambda d: d.sweep({"seed": range(300)}), "grid: 300 runs are too many at once"),
    "a part of a number": (lambda d: d.sweep({"rows.most": [1]}), "grid: rows.most names a part of rows"),
    "an unknown argument": (lambda d: d.sweep({"learning_rate": [0.1]}), "learning_rate: no such field; the fields"),
    "a wrong value": (lambda d: d.sweep({"optimizer.lr": [0.1, -1]}), "optimizer.lr: Input should be greater"),
    "a tag of two words": (lambda d: d.sweep({"seed": [1]}, tag="two words"), "tags.0: a tag is one word: letters"),
    "tags as a word": (lambda d: d.sweep({"seed": [1]}, tags="mine"), "tags: give a list, such as ["),
    "tags as a number": (lambda d: d.sweep({"seed": [1]}, tags=5), "tags: give a list, such as ["),
    "threads as a word": (lambda d: d.sweep({"seed": [1]}, at_once="4"), "at_once: give a number above 0, not"),
    "no threads": (lambda d: d.sweep({"seed": [1]}, at_once=0), "at_once: give a number above 0, not"),
    "a class as the module": (lambda d: d.sweep({"seed": [1]}, nn.Linear), "Linear is a class: give an instance"),
    "no rounds": (
        lambda d: d.market.sweep(nn.Linear(8, 4), nn.MSELoss(), (X, Y), {"seed": [1]}, price="1"),
        "give rounds, as for train",
    ),
    "a module of nothing": (
        lambda d: d.sweep({"seed": [1]}, lambda _point: None),
        "a NoneType is no nn.Module: write one",
    ),
    "the best of no metric": (
        lambda d: Sweep("t", [{"a": 1}], [d.job]).best("auroc"),
        "no run of t has measured auroc wait",
    ),
    "the best of no direction": (lambda d: Sweep("t", [{"a": 1}], [d.job]).best("loss", better="up"), "better: give"),
}
CONTINUING: Final[dict[str, tuple[Try, str]]] = {
    "extended by nothing": (lambda d: d.job.extend(), "extend: give rounds, such as"),
    "extended by no rounds": (lambda d: d.job.extend(rounds=0), "rounds: Input should be greater than"),
    "extended by a word": (lambda d: d.job.extend(rounds="many"), "rounds: Input should be a valid"),
    "extended by a fraction": (lambda d: d.job.extend(rounds=1.5), "rounds: Input should be a valid"),
    "extended for too little": (lambda d: d.job.extend(rounds=2, budget="1"), "budget: it pays for no round: name"),
    "extended for dollars": (lambda d: d.job.extend(rounds=2, budget="1 USD"), "is no amount: write it like"),
    "extended for a number": (lambda d: d.job.extend(rounds=2, budget=5), "budget: Input should be a valid string"),
    "more money for a finished job": (
        lambda d: d.job.extend(budget="1 GRAD"),
        "it takes no more money `gradmarket job extend",
    ),
    "more money as a word": (lambda d: d.job.fund("much"), "is no amount: write it like"),
    "more money as a number": (lambda d: d.job.fund(5), "5 is no amount: write it like"),
    "more money of a fraction": (lambda d: d.job.fund(0.5), "0.5 is no amount: write it like"),
    "continued from nothing": (lambda d: d.train(continue_from=ABSENT), "no job 0000000000000000 check the id"),
    "continued from a number": (lambda d: d.train(continue_from=5), "s id is a word, not a int give job.id"),
    "continued from a view": (lambda d: d.train(continue_from=d.job.view()), "s id is a word, not a JobView give"),
    "continued by another optimizer": (lambda d: d.train(continue_from=d.job, optimizer=SGD), "continue_from: job"),
    "parameters of a later round": (
        lambda d: d.job.load_into(nn.Linear(8, 4), after_round=99),
        "no parameters after round 99 of job",
    ),
    "parameters of a round by word": (
        lambda d: d.job.load_into(nn.Linear(8, 4), after_round="last"),
        "round: Input should be a valid",
    ),
    "parameters into another model": (lambda d: d.job.load_into(nn.Linear(3, 3)), "this is not the model that was"),
    "parameters into a class": (lambda d: d.job.load_into(nn.Linear), "Linear is a class: give an instance"),
    "the best of none": (lambda d: d.paused.load_best_into(nn.Linear(8, 4)), "has measured no parameters on"),
    "a picture of no round": (lambda d: d.paused.plot(), "no round of this job has a loss yet"),
    "rows of no table": (lambda d: d.job.encode({"a": [1]}), "trains on no table, text or pictures"),
    "a finished job paused": (lambda d: d.job.pause(), "the job is finished: it cannot be"),
    "a finished job resumed": (lambda d: d.job.resume(), "the job is finished: it cannot be"),
    "a finished job cancelled": (lambda d: d.job.cancel(), "the job is finished: it cannot be"),
    "a callback that is a class": (
        lambda d: d.job.watch(QUIET, callbacks=[Path]),
        "callbacks: Path is a class: give an",
    ),
    "a callback that is none": (lambda d: d.job.watch(QUIET, callbacks=5), "callbacks: give a list, such as"),
    "a callback without methods": (lambda d: d.job.watch(QUIET, callbacks=[5]), "callbacks: a int has no started"),
    "a wait by a word": (lambda d: d.job.watch(QUIET, timeout="long"), "timeout: give seconds, such as"),
    "a console of a number": (lambda d: d.job.watch(5), "console: give a rich.console.Console, not '5'"),
    "a title of a number": (lambda d: d.job.plot(5), "title: give a text, not '5'"),
    "a paused job watched": (lambda d: d.paused.watch(QUIET), "The job is paused: paused by its"),
    "tags as a word": (lambda d: d.job.label(tags="mine"), "tags: give a list, such as ["),
    "tags that are a number": (lambda d: d.job.label(tags=5), "tags: give a list, such as ["),
    "tags of two words": (lambda d: d.job.label(tags=["two words"]), "tags.0: a tag is one word: letters"),
    "tags of numbers": (lambda d: d.job.label(tags=[5]), "tags.0: Input should be a valid"),
    "too many tags": (
        lambda d: d.job.label(tags=[f"t{number}" for number in range(21)]),
        "tags: 20 at most change the fields that",
    ),
    "a note of a number": (lambda d: d.job.label(note=5), "note: Input should be a valid string"),
    "a note without an end": (lambda d: d.job.label(note="x" * 2001), "note: 2000 characters at most change"),
    "a note with controls": (lambda d: d.job.label(note="a\x1b[31m"), "note: has U+001B: leave control and"),
}
DATASETS: Final[dict[str, tuple[Try, str]]] = {
    "no text": (lambda d: d.train(Text("", 8)), "0 tokens are too few: two rows of 8"),
    "little text": (lambda d: d.train(Text("short", 8)), "5 tokens are too few: two rows of 8"),
    "a row of no tokens": (lambda d: d.train(Text(PROSE, 0)), "a row of text has a whole number of"),
    "a length as a word": (lambda d: d.train(Text(PROSE, "8")), "a row of text has a whole number of"),
    "a length of a fraction": (lambda d: d.train(Text(PROSE, 8.5)), "a row of text has a whole number of"),
    "no tokenizer": (lambda d: d.train(Text(PROSE, 8, 5)), "a int is no tokenizer: give one with"),
    "a tokenizer's name": (lambda d: d.train(Text(PROSE, 8, "gpt2")), "a str is no tokenizer: give one with"),
    "a text as a number": (lambda d: d.train(Text(5, 8)), "a text is a str, not int: give text"),
    "a text as bytes": (lambda d: d.train(Text(b"abc" * 99, 8)), "a text is a str, not bytes: give"),
    "a list of numbers as text": (lambda d: d.train(Text([1, 2], 8)), "a text is a str, not a int: give"),
    "a file of text that is not there": (lambda d: d.train(Text(Path("nowhere.txt"), 8)), "there is no nowhere.txt"),
    "a folder without text": (lambda d: d.train(Text(d.folder / "pictures", 8)), "has no .txt or .md files"),
    "a file that is no text": (
        lambda d: d.train(Text(d.folder / "junk.txt", 8)),
        "is not text in UTF-8: convert it, or",
    ),
    "a class of text": (lambda d: d.train(Text), "a dataset is a pair (x, y), a"),
    "pictures of nowhere": (lambda d: d.train(Images("nowhere")), "there is no folder nowhere"),
    "pictures of a number": (lambda d: d.train(Images(5)), "Images takes the path of a folder"),
    "no folder for each class": (lambda d: d.train(Images(d.folder)), "has no folder with .png, .jpg, .jpeg"),
    "a size of one number": (
        lambda d: d.train(Images(d.folder / "pictures", size=8)),
        "a size is (height, width) in pixels",
    ),
    "a size of words": (
        lambda d: d.train(Images(d.folder / "pictures", size=("8", "8"))),
        "a size is (height, width) in pixels",
    ),
    "a size of zero": (
        lambda d: d.train(Images(d.folder / "pictures", size=(0, 8))),
        "a size is (height, width) in pixels",
    ),
    "a mode of another kind": (lambda d: d.train(Images(d.folder / "pictures", mode="CMYK")), "there is no mode"),
    "a broken picture": (lambda d: d.train(Images(d.folder / "pictures")), "cannot be read as a picture: cannot"),
    "a broken table": (lambda d: d.train(str(d.folder / "junk.parquet")), "cannot be read: Could not open"),
    "a table without a header": (
        lambda d: d.train(str(d.folder / "numbers.csv"), target="y"),
        "the first row holds numbers (1, 2)",
    ),
    "a file of another kind": (
        lambda d: d.train(str(d.folder / "junk.xlsx")),
        "is not one of .npy, .npz, .safetensors",
    ),
}
COMMANDS: Final[dict[str, tuple[Try, str]]] = {
    "no file": (cli("job submit nowhere.json --yes"), "there is no file nowhere.json see"),
    "a file that is no JSON": (cli("job submit {folder}/junk.txt --yes"), "t decode byte 0x93 in position 0"),
    "a table as a job": (cli("job submit {folder}/numbers.csv --yes"), "is not JSON: Extra data: line 1"),
    "nobody to ask": (cli("job submit {folder}/whole.json"), "there is no terminal to confirm on: add"),
    "an unknown field": (file(epochs=3), "epochs: no such field; the fields are name"),
    "an unknown architecture": (file(model={"architecture": "resnet"}), "model.architecture: no"),
    "an unknown argument of one": (
        file(model={"architecture": "mlp", "arguments": {"layers": 3}}),
        "model.arguments.layers: no such",
    ),
    "an unknown optimizer": (file(optimizer={"name": "lbfgs"}), "optimizer.lr: Field required correct it"),
    "an unknown dataset": (file(data={"ready": "imagenet"}), "data.ready: Input should be"),
    "a manifest that is not there": (
        file(data={"manifest": "blake3:" + "0" * 64}),
        "data.manifest: upload it first: PUT",
    ),
    "a price that is none": (file(price="cheap"), "price: no amount: write it like"),
    "no price": (file(price=None), "price: no amount: write it like"),
    "a stop that is none": (file(stop=["when it is good"]), "when it is good"),
    "a stop at no metric": (file(stop=["auc > 0.9"]), "stop: a metric is watched only where"),
    "continued from nothing": (file(continue_from=ABSENT), "no job 0000000000000000 look for it"),
    "continued from a list": (file(continue_from=[1]), "continue_from: write an object correct"),
    "tags of two words": (file(tags=["two words"]), "tags.0: a tag is one word: letters"),
    "tags as a word": (file(tags="mine"), "tags: write a list correct it in the"),
    "extended by no rounds": (cli("job extend {job} --rounds 0"), "rounds: Input should be greater than"),
    "extended by a word": (cli("job extend {job} --rounds many"), "Input should be a valid integer"),
    "extended by nothing": (cli("job extend {job}"), "Missing option"),
    "extended for dollars": (cli("job extend {job} --rounds 1 --budget 1_USD"), "is no amount: write it like"),
    "extended for too little": (cli("job extend {job} --rounds 1 --budget 1"), "budget: it pays for no round: name"),
    "nothing extended": (cli(f"job extend {ABSENT} --rounds 1"), "no job 0000000000000000 look for it"),
    "checkpoints of nothing": (run_public_command(f"job checkpoints {ABSENT}"), "no job 0000000000000000 look for it"),
    "compared with nothing": (run_public_command("job diff {job} " + ABSENT), "no job 0000000000000000 look for it"),
    "compared with none": (run_public_command("job diff {job}"), "Missing argument"),
    "labelled with nothing": (cli("job label {job}"), "nothing to write: add --tag WORD"),
    "labelled with two words": (cli("job label {job} --tag two_words"), "tags.0: a tag is one word: letters"),
    "a tag and none": (cli("job label {job} --tag mine --no-tags"), "--tag writes tags and --no-tags takes"),
    "listed by two words": (run_public_command("job list --tag two_words"), "tag: a tag is one word: letters"),
    "listed by no state": (run_public_command("job list --state done"), "state: Input should be"),
    "funded with a word": (cli("job fund {paused} much"), "is no amount: write it like"),
    "funded with less": (cli("job fund {paused} -- -5"), "Got unexpected extra argument(s)"),
    "a round that was never": (cli("job download {job} --round 99"), "no parameters after round 99 of job"),
    "the best of none": (cli("job download {paused} --best"), "has measured no parameters on"),
    "a round and the best": (cli("job download {job} --best --round 0"), "--best and --round name two"),
    "downloaded into no folder": (
        cli("job download {job} --output {folder}/nowhere/a.safetensors"),
        "cannot be written: there is no folder",
    ),
    "a starter that is none": (
        cli("new {folder}/first --for sound", alone=True),
        "is none of images, table, text choose",
    ),
    "no starter": (cli("new {folder}/first", alone=True), "is none of images, table, text choose"),
    "into a full folder": (cli("new {folder} --for table", alone=True), "exists and is not an empty folder"),
    "a starter that is private and open": (
        cli("new {folder}/first --for table --private", alone=True),
        "--private has a starter of its own",
    ),
    "an audit of nowhere": (cli("audit nowhere {job}", alone=True), "is not the address of a service write"),
    "an audit of nothing": (
        cli("audit {url} " + ABSENT + " --folder {folder}/audits", alone=True),
        "no job 0000000000000000 look for it",
    ),
    "an audit of a paused job": (
        cli("audit {url} {paused} --folder {folder}/audits", alone=True),
        "is paused come again when it has ended",
    ),
    "an audit on no device": (cli("audit {url} {job} --device tpu", alone=True), "is not a device: name auto, cpu"),
    "an audit of less than nothing": (
        cli("audit {url} {job} --sample -1", alone=True),
        "Input should be greater than or equal",
    ),
    "an audit's report nowhere": (
        cli("audit {url} {job} --report {folder}/nowhere/report.html", alone=True),
        "cannot be written: there is no folder",
    ),
    "an audit of an archive that is not there": (
        cli("audit {folder}/archive.json {job}", alone=True),
        "archive.json is not there name a folder that",
    ),
    "an audit by a chain of nowhere": (
        cli("audit {url} {job} --rpc nowhere", alone=True),
        "is not the address of a chain's node write",
    ),
    "an archive in a file": (cli("archive {url} {job} {folder}/numbers.csv", alone=True), "is a file name a folder"),
    "an archive of nothing": (
        cli(f"archive {{url}} {ABSENT} {{folder}}/to --folder {{folder}}/a", alone=True),
        "no job 0000000000000000 look for it",
    ),
    "a release that is none": (
        lambda d: CliRunner().invoke(RELEASE, ["--check", str(d.folder / "pictures")]),
        "is missing or is no statement of a",
    ),
}
PACKING: Final[dict[str, tuple[Try, str]]] = {
    "nothing": (
        cli("data pack nowhere.npz --rows-per-partition 5 -o {folder}/out", alone=True),
        "there is no nowhere.npz see",
    ),
    "no rows": (
        cli("data pack {folder}/rows.npz --rows-per-partition 0 -o {folder}/out", alone=True),
        "--rows-per-partition",
    ),
    "an unknown format": (pack("--format zip"), "here; there is jsonl, npy, npz"),
    "no column": (pack("--target z"), "there is no column z; the columns are x, y"),
    "an input without columns": (pack("--input x"), "write an input as NAME=COLUMN or"),
    "an input of no column": (pack("--input x=z"), "there is no column z; the columns are x, y"),
    "labels beyond the classes": (pack("--classes 2"), "row 2 of y has 2; the model takes 0"),
    "all held out": (pack("--held-out 1"), "a partition has at least one row, and"),
    "held out by a word": (pack("--held-out half"), "Input should be a valid number"),
    "held out is no number": (pack("--held-out nan"), "a partition has at least one row, and"),
    "text without a length": (pack("", "prose.txt"), "name how many tokens a row has, such"),
    "text of a length that is none": (pack("--length 0", "prose.txt"), "Input should be greater than or equal"),
    "text longer than all": (pack("--length 99999", "prose.txt"), "1400 tokens are too few: two rows of"),
    "a length of rows": (pack("--length 8"), "is not text in UTF-8: convert it, or"),
    "a tokenizer without text": (pack("--tokenizer {folder}/t.json"), "--tokenizer applies to text, and"),
    "a tokenizer that is not there": (
        pack("--length 8 --tokenizer {folder}/t.json", "prose.txt"),
        "see `gradmarket data pack --help`",
    ),
    "a tokenizer that is none": (
        pack("--length 8 --tokenizer {folder}/whole.json", "prose.txt"),
        "is no tokenizer file: expected `,` or",
    ),
    "a size that is none": (pack("--size 8,8", "pictures"), "--size 8,8: write HEIGHTxWIDTH in"),
    "a size of rows": (pack("--size 8x8"), "--size and --grey apply to a folder"),
    "a broken picture": (pack("", "pictures"), "cannot be read as a picture: cannot"),
    "into a file": (
        cli("data pack {folder}/rows.npz --rows-per-partition 5 -o {folder}/numbers.csv", alone=True),
        "File exists name another place",
    ),
    "an address that is none": (pack("--base-url nowhere"), "is no address write it like"),
    "nothing uploaded": (cli("data upload {folder}/nowhere"), "`gradmarket data pack` writes it see"),
    "a folder without a manifest": (cli("data upload {folder}/pictures"), "`gradmarket data pack` writes it see"),
}
WEBHOOKS: Final[dict[str, tuple[Try, str]]] = {
    "no address": (cli("webhook add nowhere"), "is neither http nor https change the"),
    "by http": (cli("webhook add http://example.com/hook"), "url: its host is not a public"),
    "to this machine": (cli("webhook add https://127.0.0.1/hook"), "url: its host is not a public"),
    "to a private machine": (cli("webhook add https://192.168.0.1/hook"), "url: its host is not a public"),
    "to a file": (cli("webhook add file:///etc/passwd"), "file:///etc/passwd"),
    "with a password": (cli("webhook add https://me:secret@example.com/hook"), "url: the link carries credentials"),
    "of nothing that happens": (cli("webhook add https://1.1.1.1/hook --on job.done"), "happenings.0: Input should be"),
    "a ping of nothing": (cli(f"webhook ping {ABSENT}"), "no webhook 0000000000000000 look for"),
    "a ping of a word": (cli("webhook ping mine"), "webhook_id: an id has 16 digits"),
    "nothing removed": (cli(f"webhook remove {ABSENT}"), "no webhook 0000000000000000 look for"),
    "from Python": (
        lambda d: d.market.add_webhook("https://1.1.1.1/hook", "finished"),
        "happenings.0: Input should be",
    ),
    "from Python, a list": (
        lambda d: d.market.add_webhook("https://1.1.1.1/hook", ["job.finished"]),
        "happenings.0: Input should be",
    ),
    "from Python, a number": (lambda d: d.market.add_webhook(5), "url: Input should be a valid string"),
    "from Python, nothing removed": (lambda d: d.market.remove_webhook("mine"), "webhook_id: an id has 16 digits"),
    "by a body of another kind": (
        rest("POST", "/v1/webhooks", {"address": "https://1.1.1.1"}),
        "url: Field required; address: Extra",
    ),
    "by no body": (rest("POST", "/v1/webhooks", "{"), "the body is not JSON: Expecting"),
    "by nobody": (
        rest("POST", "/v1/webhooks", {"url": "https://1.1.1.1/hook"}, token=None),
        "send `Authorization: Bearer <token>`",
    ),
}
TOKENS: Final[dict[str, tuple[Try, str]]] = {
    "no name": (cli("token create two_words --role submit"), "s name is one word: letters, digits"),
    "no role": (cli("token create mine --role owner"), ". see `gradmarket token create --help`"),
    "a role that is left out": (cli("token create mine"), "Missing option"),
    "an end that is none": (
        cli("token create mine --role submit --expires soon"),
        "--expires soon: write a number and s",
    ),
    "an end at once": (cli("token create mine --role submit --expires 0d"), "--expires 0d: write a number and s"),
    "an end beyond time": (
        cli("token create mine --role submit --expires 999999999d"),
        "--expires 999999999d: 3650d at most",
    ),
    "a budget in dollars": (cli("token create mine --role submit --budget 1_USD"), "is no amount: write it like"),
    "a budget below nothing": (cli("token create mine --role submit --budget -5"), "is no amount: write it like"),
    "no limit": (cli("token limit mine much"), "is no amount: write it like"),
    "a limit of nobody": (cli("token limit nobody 1_GRAD"), "no token nobody: gradmarket token"),
    "what nobody spends": (cli("token limit nobody"), "no token nobody: gradmarket token"),
    "nobody revoked": (cli("token revoke nobody"), "no token nobody look for it with"),
    "a page for no role": (cli("token page --role owner"), ". see `gradmarket token page --help`"),
    "spending of nobody": (lambda d: d.market.spending("nobody"), "no token nobody: gradmarket token"),
    "spending of two words": (lambda d: d.market.spending("two words"), "s name is one word: letters, digits"),
    "spending of a number": (lambda d: d.market.spending(5), "s name is a word, not a int"),
    "a limit of a list": (
        rest("PUT", "/v1/tokens/mine/spending", {"a_day": [1]}),
        "a_day: Input should be a valid string",
    ),
    "a limit by another name": (
        rest("PUT", "/v1/tokens/mine/spending", {"limit": "1 GRAD"}),
        "a_day: Field required; limit: Extra",
    ),
    "a wrong token": (rest("GET", "/v1/tokens", token="wrong"), "this token is not known here, or ended"),
}
BODIES: Final[dict[str, tuple[Try, str]]] = {
    "no JSON": (rest("POST", "/v1/jobs", "{name: digits}"), "the body is not JSON: Expecting"),
    "a list": (rest("POST", "/v1/jobs", "[1]"), "the body is no JSON object change"),
    "nothing": (rest("POST", "/v1/jobs", ""), "the body is empty: send it with"),
    "no token": (rest("POST", "/v1/jobs", WHOLE, token=None), "send `Authorization: Bearer <token>`"),
    "an empty job": (rest("POST", "/v1/jobs", {}), "name: Field required; model: Field"),
    "a misspelt field": (post(round=3), "round: no such field; did you mean"),
    "rounds as a truth": (post(rounds=True), "rounds: true and false are no"),
    "rounds as text": (post(rounds="many"), "rounds: Input should be a valid"),
    "rounds beyond all": (post(rounds=10**9), "rounds: Input should be less than or"),
    "a price as a fraction": (post(price=0.5), "price: no amount: write it like"),
    "a budget of nothing": (post(budget="1"), "budget: it pays for no round: name"),
    "an empty stop": (post(stop=[{}]), "stop.0.metric: Field required"),
    "an infinite stop": (rest("POST", "/v1/jobs", INFINITE), "a number is infinite or none change"),
    "a NUL": (post(name="a\0b"), "a text has a NUL character change"),
    "a long tag": (post(tags=["x" * 41]), "tags.0: a tag is one word: letters"),
    "a long note": (post(note="x" * 2001), "note: 2000 characters at most change"),
    "extended by no rounds": (
        rest("POST", "/v1/jobs/{job}/extend", {"rounds": 0}),
        "rounds: Input should be greater than",
    ),
    "extended by nothing": (rest("POST", "/v1/jobs/{job}/extend", {}), "rounds: Field required change the"),
    "extended by other fields": (
        rest("POST", "/v1/jobs/{job}/extend", {"rounds": 1, "price": "1"}),
        "price: no such field; the fields are",
    ),
    "nothing extended": (
        rest("POST", f"/v1/jobs/{ABSENT}/extend", {"rounds": 1}),
        "no job 0000000000000000 check the id",
    ),
    "labelled with other fields": (
        rest("PATCH", "/v1/jobs/{job}", {"name": "mine"}),
        "name: no such field; the fields are tags",
    ),
    "labelled with numbers": (rest("PATCH", "/v1/jobs/{job}", {"tags": [1]}), "tags.0: Input should be a valid"),
    "funded with a word": (rest("POST", "/v1/jobs/{paused}/fund", {"amount": "much"}), "is no amount: write it like"),
    "steered otherwise": (rest("POST", "/v1/jobs/{job}/stop", {}), "Not Found check the id; lists have"),
    "found by two words": (rest("GET", "/v1/jobs?tag=two%20words"), "tag: a tag is one word: letters"),
    "found by no state": (rest("GET", "/v1/jobs?state=done"), "state: Input should be"),
    "a page of no length": (rest("GET", "/v1/jobs?limit=0"), "limit: Input should be greater than"),
    "a page of nowhere": (rest("GET", "/v1/jobs?cursor=next"), "cursor: not one of ours; begin"),
    "a round of a word": (rest("GET", "/v1/jobs/{job}/parameters?round=last"), "round: Input should be a valid"),
    "checkpoints of nothing": (rest("GET", f"/v1/jobs/{ABSENT}/checkpoints"), "no job 0000000000000000 check the id"),
    "prices for nobody": (rest("GET", "/v1/prices", token=None), "send `Authorization: Bearer <token>`"),
    "a route that is none": (rest("GET", "/v1/job"), "Not Found check the id; lists have"),
    "a method that is none": (rest("DELETE", "/v1/jobs/{job}"), "Method Not Allowed see /docs for"),
    "a blob of another digest": (
        rest("PUT", "/v1/blobs/blake3:" + "0" * 64, "abc"),
        "change the fields that the message",
    ),
    "a blob without a digest": (rest("PUT", "/v1/blobs/mine", "abc"), "digest: a digest is blake3: and 64"),
}
FORM: Final[dict[str, tuple[Try, str]]] = {
    "by nobody": (rest("POST", "/page/plan", WHOLE, token=None), "send `Authorization: Bearer <token>`"),
    "no JSON": (rest("POST", "/page/plan", "{"), "the body is not JSON"),
    "an empty field": (form(rounds=""), "rounds: Input should be a valid"),
    "rounds as a fraction": (form(rounds=1.5), "rounds: Input should be a valid"),
    "a price in dollars": (form(price="1 USD"), "is no amount: write it like"),
    "an unknown architecture": (form(model={"architecture": "resnet"}), "model, architecture: no"),
    "an unknown dataset": (form(data={"ready": "imagenet"}), "data, ready: Input should be"),
    "no learning rate": (form(optimizer={"name": "sgd"}), "optimizer, lr: Field required"),
    "a budget for no round": (form(budget="1"), "budget: it pays for no round: name"),
    "tags as a word": (form(tags="mine"), "tags: write a list"),
    "continued from nothing": (form(continue_from=ABSENT), "continue from: there is no job"),
    "a rule that is none": (form(stop=["soon"]), "is no rule: write one like"),
}

CASES: Final = {
    f"{kind}: {name}": case
    for kind, cases in {
        "arguments": ARGUMENTS, "measuring": MEASURING, "sweeps": SWEEPS, "continuing": CONTINUING,
        "datasets": DATASETS, "commands": COMMANDS, "packing": PACKING, "webhooks": WEBHOOKS, "tokens": TOKENS,
        "bodies": BODIES, "form": FORM,
    }.items()
    for name, case in cases.items()
}  # fmt: skip


@pytest.fixture(scope="module")
def newcomer(market: Market, served: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Newcomer]:
    folder = tmp_path_factory.mktemp("newcomer")
    np.savez(folder / "rows.npz", x=X, y=Y)
    (folder / "numbers.csv").write_text("1,2\n3,4\n")
    (folder / "prose.txt").write_text(PROSE)
    (folder / "whole.json").write_text(json.dumps(WHOLE))
    (folder / "pictures" / "cat").mkdir(parents=True)
    for name in ("junk.txt", "junk.parquet", "junk.xlsx", "pictures/cat/1.png"):
        (folder / name).write_bytes(b"\x93\xff\x00 junk")
    loss, given = nn.CrossEntropyLoss(), {"rounds": 1, "price": "0.001 GRAD", "rows": 8, "replication": ALONE}
    paused = market.train(nn.Linear(8, 4), loss, (X, Y), **{**given, "replication": {"name": "fixed"}})
    wait_until(lambda: paused.state == "running")
    paused.pause()
    job = market.train(nn.Linear(8, 4), loss, (X, Y), **given)
    job.watch(QUIET)
    before = list_kept(market)
    yield Newcomer(market, served.place.url, served.place.token or "", job, paused, folder)
    assert list_kept(market) == before, "a mistake made something, or lost it"
    paused.cancel()


def list_kept(market: Market) -> tuple[dict[str, tuple[str, list[str], str]], set[str], set[str]]:
    """Jobs with their state, tags and note, the names of tokens, and the ids of webhooks."""
    client = market._client
    jobs = {job.id: (job.state, list(job.tags), job.note) for job in client.jobs()}
    return jobs, {one.name for one in client.tokens() if "mine" in one.name}, {one.id for one in client.webhooks()}


def read_sentence(tried: Try, newcomer: Newcomer) -> str:
    """Returns the sentence and its remedy, after a check that it is one, without a traceback above it."""
    try:
        answer = tried(newcomer)
    except MarketError as error:
        shown = "".join(traceback.format_exception(error))
        assert "During handling" not in shown
        assert shown.count("\n") <= LONGEST_TRACE, shown
        return f"{error} {error.remedy}".strip()
    if isinstance(answer, httpx.Response):
        kind = answer.headers["content-type"]
        if kind.startswith("text/html"):
            return " ".join(html.unescape(re.sub("<[^>]+>", "", answer.text)).split())
        assert 400 <= answer.status_code < 500, answer.text
        assert kind == "application/problem+json"
        problem = answer.json()
        assert problem["remedy"], problem
        return f"{problem['detail']} {problem['remedy']}"
    assert answer.exit_code == CODE, (answer.output, answer.exception)
    _before, _error, told = answer.stderr.partition("error: ")
    lines = told.splitlines()
    assert lines[-1].startswith("fix: "), answer.stderr
    assert all(line.startswith("  ") for line in lines[1:-1]), lines
    return " ".join((*lines[:-1], lines[-1].removeprefix("fix: ")))


@pytest.mark.parametrize(("tried", "said"), leave_to_full(CASES.values(), 40), ids=CASES.keys())
def test_a_newcomer_s_mistake_is_refused_in_a_sentence(newcomer: Newcomer, tried: Try, said: str) -> None:
    sentence = read_sentence(tried, newcomer)
    assert "\n" not in sentence, sentence
    assert said in sentence, sentence
