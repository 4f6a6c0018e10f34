"""A worker makes a round's parameters from those it holds and the updates since, and believes none of it unchecked."""

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradmarket.compute.cache import Cache
from gradmarket.compute.fetch import Fetcher
from gradmarket.compute.published import fetch_parameters
from gradmarket.market.gradient.codecs import load_codec
from gradmarket.market.gradient.one_step import OptimizerStep
from gradmarket.market.gradient.optimizers import load_optimizer
from gradmarket.market.gradient.published_update import count_worthwhile_updates, update_bytes
from gradmarket.market.gradient.round_update import build_model_state
from gradmarket.market.job import Publication
from gradmarket.market.job_parts import Downlink, FirstUpdates
from gradmarket.market.terms import Digest, blob_digest
from gradmarket.market.wire.poll import hash_of
from gradmarket.network import DownloadRefused
from gradmarket.runner import DocumentInfo, Runner
from graphdoc.tensors import pack_tensors, unpack_tensors
from tests.kit.web_server import send_page, serving_by
from tests.kit.whole_merge import apply_merged_answer

SGD, INT8, ROUNDS = load_optimizer("sgd"), load_codec("int8"), 6


@dataclass
class History:
    """A job's parameters before each round and after the last, the updates between them, and the requests for them."""

    publication: Publication
    info: DocumentInfo
    versions: list[bytes]
    updates: list[bytes]
    pages: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def serve(self, *blobs: bytes) -> None:
        self.pages |= {f"/v1/blobs/{blob_digest(blob)}": blob for blob in blobs}

    def digest(self, number: int) -> Digest:
        return blob_digest(self.versions[number])

    def name_path(self, number: int, steps: list[dict[str, Any]] | None = None) -> None:
        """Serves the updates that lead to the parameters of a round's tasks."""
        if steps is None:
            steps = [
                {"before": self.digest(k - 1), "update": blob_digest(self.updates[k - 1]), "updated": self.digest(k)}
                for k in range(number, 0, -1)
            ]
        page = f"/v1/jobs/{self.publication.job}/rounds/{number}/updates"
        self.pages[page] = json.dumps({"updates": steps}).encode()

    def get(self, fetcher: Fetcher, number: int) -> bytes:
        return fetch_parameters(fetcher, self.publication, number, self.digest(number), self.info)

    def taken(self) -> list[str]:
        """The blobs asked for, by name, and forgets them."""
        names = {f"/v1/blobs/{blob_digest(blob)}": f"w{k}" for k, blob in enumerate(self.versions)}
        names |= {f"/v1/blobs/{blob_digest(blob)}": f"c{k}" for k, blob in enumerate(self.updates)}
        taken = [names[page] for page in self.asked if page in names]
        self.asked.clear()
        return taken


@pytest.fixture
def history(publication: Publication, blobs: dict[Digest, bytes], runner: Runner) -> History:
    return played(publication, blobs, runner, Downlink(codec="int8"))


def played(publication: Publication, blobs: dict[Digest, bytes], runner: Runner, downlink: Downlink) -> History:
    info = DocumentInfo.of(runner.load(blobs[publication.document]))
    first = blobs[publication.parameters]
    steps = [
        OptimizerStep(SGD, SGD.Settings(), downlink=load_codec(downlink.codec_of(number))) for number in range(ROUNDS)
    ]
    states, versions = [build_model_state(info.layout, unpack_tensors(first), steps[0])], [first]
    for number, step in enumerate(steps):
        rng = np.random.default_rng(number)
        merged = {entry.name: rng.standard_normal(entry.shape).astype(np.float32) for entry in info.layout.entries}
        merged = {name: np.asarray(array, np.float32) for name, array in merged.items()}
        start = hash_of(blob_digest(versions[-1]))
        states.append(apply_merged_answer(info.layout, states[-1], merged, step, 0.1, info.document.counters, start))
        versions.append(pack_tensors(states[-1].tensors))
    spec = publication.spec.model_copy(update={"downlink": downlink})
    return History(
        publication.model_copy(update={"spec": spec}), info, versions, [state.update for state in states[1:]]
    )


@pytest.fixture
def origin(history: History) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            history.asked.append(self.path)
            page = history.pages.get(self.path)
            if page is None:
                self.send_error(404)
                return
            send_page(self, page)

    with serving_by(Handler) as url:
        yield url


@pytest.fixture
def fetcher(origin: str, tmp_path: Path) -> Iterator[Fetcher]:
    with closing(Fetcher(Cache(tmp_path / "cache", 2**26), origin, 2**24)) as made:
        yield made


def test_the_first_parameters_come_whole_and_then_an_update_a_round(history: History, fetcher: Fetcher) -> None:
    history.serve(*history.versions, *history.updates)
    for number in range(ROUNDS + 1):
        history.name_path(number)
        assert history.get(fetcher, number) == history.versions[number]
    assert history.taken() == ["w0", *(f"c{number}" for number in range(ROUNDS))]
    assert history.get(fetcher, 3) == history.versions[3]
    assert history.taken() == [], "it is in the cache"


def test_rounds_that_were_missed_are_caught_up_with_while_that_takes_fewer_bytes(
    history: History, fetcher: Fetcher
) -> None:
    history.serve(*history.versions, *history.updates)
    most = count_worthwhile_updates(history.info.layout, INT8)
    assert most * update_bytes(history.info.layout, INT8) < len(history.versions[0])
    history.get(fetcher, 0)
    for number in (most, most + 1):
        history.name_path(number)
    assert history.get(fetcher, most) == history.versions[most]
    assert history.taken() == ["w0", *(f"c{number}" for number in range(most))]


def test_a_worker_that_missed_too_many_rounds_downloads_the_whole(history: History, fetcher: Fetcher) -> None:
    history.serve(*history.versions, *history.updates)
    far = count_worthwhile_updates(history.info.layout, INT8) + 1
    history.name_path(far)
    assert history.get(fetcher, far) == history.versions[far]
    assert history.taken() == [f"w{far}"]
    history.name_path(ROUNDS)
    history.get(fetcher, 0)
    history.taken()
    (fetcher._cache.path(history.digest(far))).unlink()
    assert history.get(fetcher, far) == history.versions[far]
    assert history.taken() == [f"w{far}"]


def test_a_job_without_a_downlink_asks_for_no_updates(history: History, fetcher: Fetcher) -> None:
    spec = history.publication.spec.model_copy(update={"downlink": Downlink()})
    whole = replace(history, publication=history.publication.model_copy(update={"spec": spec}))
    history.serve(*history.versions, *history.updates)
    history.name_path(1)
    whole.get(fetcher, 0)
    assert whole.get(fetcher, 1) == history.versions[1]
    assert [page for page in history.asked if "rounds" in page] == []


EARLY = Downlink(codec="two_bit", first=FirstUpdates(codec="int8", rounds=2))


def test_the_first_rounds_updates_are_read_with_their_own_codec(
    history: History, fetcher: Fetcher, publication: Publication, blobs: dict[Digest, bytes], runner: Runner
) -> None:
    vars(history).update(vars(played(publication, blobs, runner, EARLY)))
    assert len(history.updates[1]) > len(history.updates[2])
    history.serve(*history.versions, *history.updates)
    history.get(fetcher, 0)
    for number in (1, 3, ROUNDS):
        history.name_path(number)
        assert history.get(fetcher, number) == history.versions[number]
    assert history.taken() == ["w0", *(f"c{number}" for number in range(ROUNDS))]


def test_a_market_that_goes_on_with_the_first_codec_is_not_followed(
    history: History, fetcher: Fetcher, publication: Publication, blobs: dict[Digest, bytes], runner: Runner
) -> None:
    """Its updates are longer than the job's bound: the worker takes the whole, which has the digest of its offer."""
    job = publication.model_copy(update={"spec": publication.spec.model_copy(update={"downlink": EARLY})})
    history.serve(*history.versions, *history.updates)
    stubborn = replace(history, publication=job)
    stubborn.get(fetcher, 0)
    for number, taken in ((2, ["c0", "c1"]), (3, ["c2", "w3"])):
        stubborn.name_path(number)
        stubborn.asked.clear()
        assert stubborn.get(fetcher, number) == history.versions[number]
        assert stubborn.taken() == taken


def test_long_first_updates_count_by_their_own_bytes(
    history: History, fetcher: Fetcher, publication: Publication, blobs: dict[Digest, bytes], runner: Runner
) -> None:
    longer = Downlink(codec="two_bit", first=FirstUpdates(codec="int8", rounds=ROUNDS))
    vars(history).update(vars(played(publication, blobs, runner, longer)))
    history.serve(*history.versions, *history.updates)
    history.get(fetcher, 0)
    far = count_worthwhile_updates(history.info.layout, INT8) + 1
    assert far <= count_worthwhile_updates(history.info.layout, load_codec("two_bit"))
    history.name_path(far)
    assert history.get(fetcher, far) == history.versions[far]
    assert history.taken() == ["w0", f"w{far}"]


def spoiled(history: History, fetcher: Fetcher, how: str) -> None:
    """Makes a market name and serve updates that lead elsewhere."""
    step = {"before": history.digest(0), "update": blob_digest(history.updates[0]), "updated": history.digest(1)}
    if how == "no list":
        history.pages.pop(f"/v1/jobs/{history.publication.job}/rounds/1/updates")
    elif how == "an endless list":
        history.name_path(1, [step] * 1000)
    elif how == "no digests":
        history.name_path(1, [step | {"before": "x"}])
    elif how == "another round's":
        history.name_path(1, [step | {"update": blob_digest(history.updates[1])}])
    elif how == "what is no model":
        fetcher.made(blob_digest(b"text"), lambda: b"text")
        history.name_path(1, [step | {"before": blob_digest(b"text")}])
    elif how == "a lost update":
        history.pages.pop(f"/v1/blobs/{blob_digest(history.updates[0])}")
    elif how == "other codes":
        other = bytearray(history.updates[0])
        other[-3] ^= 1
        history.serve(bytes(other))
        history.name_path(1, [step | {"update": blob_digest(bytes(other))}])


WRONG = (
    "no list",
    "an endless list",
    "no digests",
    "another round's",
    "what is no model",
    "a lost update",
    "other codes",
)


@pytest.mark.parametrize("how", WRONG)
def test_spoiled_updates_end_in_a_download_of_the_whole(history: History, fetcher: Fetcher, how: str) -> None:
    history.serve(*history.versions, *history.updates)
    history.name_path(1)
    history.get(fetcher, 0)
    spoiled(history, fetcher, how)
    assert history.get(fetcher, 1) == history.versions[1]
    assert history.taken()[-1] == "w1"


def test_a_refused_download_of_the_whole_is_raised(history: History, fetcher: Fetcher) -> None:
    history.serve(history.versions[0])
    history.get(fetcher, 0)
    with pytest.raises(DownloadRefused):
        history.get(fetcher, 1)


def test_two_workers_with_one_cache_fetch_each_thing_once(history: History, origin: str, tmp_path: Path) -> None:
    """Each has its own fetcher over its own cache of one folder, as two processes have."""
    history.serve(*history.versions, *history.updates)
    found: list[bytes] = []

    def work() -> None:
        with closing(Fetcher(Cache(tmp_path / "shared", 2**26), origin, 2**24)) as own:
            found.extend(history.get(own, number) for number in range(ROUNDS + 1))

    for number in range(ROUNDS + 1):
        history.name_path(number)
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(len, found)) == [len(history.versions[0])] * 4 * (ROUNDS + 1)
    assert set(found) == set(history.versions)
    assert sorted(history.taken()) == sorted(["w0", *(f"c{number}" for number in range(ROUNDS))])
