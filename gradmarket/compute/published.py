"""Published parameters for a task: built from cached ones and a few small updates, or downloaded whole."""

import math
from collections.abc import Iterator

import numpy as np
from pydantic import ValidationError

from gradmarket.compute.fetch import Fetcher
from gradmarket.market.errors import PayloadRefused, TensorsRefused
from gradmarket.market.gradient.codecs import Codec, load_codec
from gradmarket.market.gradient.published_update import apply_published_update, update_bytes
from gradmarket.market.job import Publication
from gradmarket.market.rules import overlap
from gradmarket.market.rules.overlap import BEFORE
from gradmarket.market.terms import Digest, blob_digest
from gradmarket.market.views.job_views import UpdatePath, UpdateView
from gradmarket.market.wire.poll import hash_of
from gradmarket.network import DownloadFailed, DownloadRefused
from gradmarket.runner import DocumentInfo
from graphdoc.encoding import Bytes
from graphdoc.tensors import HEADER_LIMIT, view_tensors

PATH_BYTES = 2**17
"""Most bytes of the list of updates."""


class Unfollowed(Exception):
    """No chain of updates leads from cached parameters to the wanted ones."""


def fetch_parameters(
    fetcher: Fetcher, publication: Publication, number: int, digest: Digest, info: DocumentInfo
) -> memoryview:
    """Returns the mapped bytes of the parameters with this digest, from which the tasks of round `number` start.

    In a job with a downlink they are built from older ones in the cache where the updates since take fewer bytes; the
    result is checked by its digest, and any mismatch ends in a download of the whole. Raises as `Fetcher.blob` does.
    """
    if publication.spec.downlink.small and digest != publication.parameters:
        try:
            return fetcher.made(digest, lambda: _apply_updates(fetcher, publication, number, digest, info))
        except (Unfollowed, DownloadFailed, DownloadRefused, PayloadRefused, TensorsRefused):
            return fetcher.blob(digest)
    return fetcher.blob(digest)


def _apply_updates(
    fetcher: Fetcher, publication: Publication, number: int, digest: Digest, info: DocumentInfo
) -> Bytes:
    # The most bytes of a file of the model's parameters: a cache has larger files too
    state = info.document.state.values()
    largest_file = HEADER_LIMIT + sum(math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in state)
    spec, left, longest = publication.spec, 4 * info.layout.size, largest_file
    last, steps, base = overlap.starts_after(number, spec.overlap), list[tuple[UpdateView, Codec]](), None
    for after, step in zip(
        range(last, BEFORE, -1), _fetch_update_chain(fetcher, publication, number, digest), strict=False
    ):
        packed = load_codec(spec.downlink.codec_of(after))
        steps.append((step, packed))
        left -= update_bytes(info.layout, packed)
        base = fetcher.held(step.before, longest) if left >= 0 else None
        if base is not None or left < 0:
            break
    if base is None:
        raise Unfollowed
    data = bytearray(base)
    del base
    tensors = view_tensors(memoryview(data))
    for step, packed in reversed(steps):
        update = fetcher.get(f"/v1/blobs/{step.update}", step.update, update_bytes(info.layout, packed))
        apply_published_update(info.layout, packed, tensors, hash_of(step.before), update, info.document.counters)
    if blob_digest(data) != digest:
        raise Unfollowed
    return data


def _fetch_update_chain(
    fetcher: Fetcher, publication: Publication, number: int, digest: Digest
) -> Iterator[UpdateView]:
    """Yields the updates that the market names, the newest first, as far as each leads to the one before."""
    answer = fetcher.small(f"/v1/jobs/{publication.job}/rounds/{number}/updates", PATH_BYTES)
    try:
        path = UpdatePath.model_validate_json(answer)
    except ValidationError as error:
        raise Unfollowed from error
    for step in path.updates:
        if step.updated != digest:
            return
        yield step
        digest = step.before
