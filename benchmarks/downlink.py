"""Bytes that a worker downloads for a task's parameters, and the loss that the codec of updates costs.

The bytes are counted where a server sends them, headers apart: a worker of the real code takes part in every round of a
job of 2.1 million parameters, whose updates are those of random gradients. The loss is that of a small character model,
with the same rounds, rows and settings, after all rounds.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from itertools import product
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.figure import Figure
from benchmarks.overlap_loss import CASES
from benchmarks.rig.character_rounds import Case, Training
from benchmarks.size import sized
from gradmarket.compute.cache import Cache
from gradmarket.compute.fetch import Fetcher
from gradmarket.compute.published import fetch_parameters
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.one_step import OptimizerStep
from gradmarket.market.gradient.optimizers import load_optimizer
from gradmarket.market.gradient.published_update import count_worthwhile_updates
from gradmarket.market.gradient.round_update import build_model_state
from gradmarket.market.job import JobSpec, Publication
from gradmarket.market.manifest import Labelled
from gradmarket.market.terms import blob_digest
from gradmarket.market.views.job_views import UpdatePath, UpdateView
from gradmarket.market.wire.poll import hash_of
from gradmarket.runner import DocumentInfo, Runner
from graphdoc.tensors import pack_tensors, view_tensors
from tests.kit.web_server import send_page, serving_by
from tests.kit.whole_merge import apply_merged_answer

PREFIX = "downlink."
SEEDS = range(int(os.environ.get("SEEDS", sized("3", "1"))))
MOST = {"int8": 1.1, "int4": 0.55, "fp4": 0.55, "two_bit": 0.35, "topk": 0.05}
"""Most bytes a parameter."""
LOSS = {"fp32": "", "int8": "<= 1.01", "int4": "<= 1.01", "two_bit": "<= 1.01", "topk": ""}
"""Largest allowed ratio of the loss to that with whole parameters."""
WIDTH, HIDDEN, ROUNDS = sized((512, 4096, 12), (8, 64, 2))
JOB = {
    "name": "downlink",
    "model": {"architecture": "mlp", "arguments": {"hidden": [HIDDEN]}},
    "data": {"ready": "digits"},
    "step": {"rows": 1},
    "optimizer": {"name": "sgd", "lr": 0.1},
    "rounds": ROUNDS + 1,
    "price": "1",
}


def measure() -> Iterator[Figure]:
    yield from _bytes()
    for case in CASES:
        yield from _losses(case)


def _losses(case: Case) -> Iterator[Figure]:
    losses: dict[str, list[float]] = {name: [] for name in LOSS}
    for seed, name in product(SEEDS, LOSS):
        losses[name].append(Training(replace(case, downlink="" if name == "fp32" else name), seed).loss())
    for name, by_seed in losses.items():
        note = f"{case.rounds} rounds; nats by seed: {', '.join(f'{loss:.3f}' for loss in by_seed)}"
        ratio = mean(by_seed) / mean(losses["fp32"])
        yield Figure(f"downlink.loss.{case.name}.{name}", ratio, "", "fp32", ratio, LOSS[name], note)


def _bytes() -> Iterator[Figure]:
    with Runner() as runner:
        runner.turn("", publishes=True)
        data = Labelled(dtype="float32", shape=(WIDTH,), classes=10)
        published = runner.publish("mlp", {"hidden": [HIDDEN]}, data, seed=0)
        info = DocumentInfo.of(runner.load(published.document))
    count = sum(entry.size for entry in info.layout.of("gradient"))
    for name, most in MOST.items():
        sent = _played(name, info, pack_tensors(published.parameters))
        for traffic, spent, target in (("task", sent[1:], f"<= {most}"), ("joining", sent[:1], "")):
            note = f"{count} parameters, one task in each of {ROUNDS} rounds after the first"
            value = mean(spent) / count
            yield Figure(
                f"downlink.bytes.{name}.{traffic}", value, "bytes a parameter", "fp32", value / 4, target, note
            )


def _played(name: str, info: DocumentInfo, first: bytes) -> list[int]:
    """Returns the bytes sent to a worker in each round."""
    digest = blob_digest(first)
    spec = JobSpec.model_validate(JOB | {"downlink": {"codec": name}})
    publication = Publication(
        job="0" * 16, spec=spec, document=info.document.digest, evaluation=None, parameters=digest, manifest=digest
    )
    rule, sent, pages = load_optimizer("sgd"), [0], {f"/v1/blobs/{digest}": first}
    step = OptimizerStep(rule, rule.Settings(), downlink=load_codec(name))
    state, path, held = build_model_state(info.layout, view_tensors(first), step), list[UpdateView](), list[int]()
    with ExitStack() as stack:
        folder, origin = Path(stack.enter_context(TemporaryDirectory())), stack.enter_context(_served(pages, sent))
        fetcher = stack.enter_context(closing(Fetcher(Cache(folder, 2**30), origin, 2**30)))
        for number in range(ROUNDS + 1):
            page = f"/v1/jobs/{publication.job}/rounds/{number}/updates"
            pages[page] = (
                UpdatePath(updates=path[: count_worthwhile_updates(info.layout, load_codec(name))])
                .model_dump_json()
                .encode()
            )
            before = sent[0]
            fetch_parameters(fetcher, publication, number, digest, info)
            held.append(sent[0] - before)
            state = apply_merged_answer(info.layout, state, _merged(info, number), step, 0.1, (), hash_of(digest))
            after, update = blob_digest(pack_tensors(state.tensors)), blob_digest(state.update)
            pages |= {f"/v1/blobs/{update}": state.update, f"/v1/blobs/{after}": pack_tensors(state.tensors)}
            path.insert(0, UpdateView(before=digest, update=update, updated=after))
            digest = after
    return held


def _merged(info: DocumentInfo, number: int) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(number).standard_normal
    return {entry.name: np.asarray(draw(entry.shape), np.float32) for entry in info.layout.entries}


@contextmanager
def _served(pages: dict[str, bytes], sent: list[int]) -> Iterator[str]:
    """Serves the pages on this machine; adds the bytes of each answer to `sent`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = pages[self.path]
            sent[0] += len(page)
            send_page(self, page)

    with serving_by(Handler) as url:
        yield url
