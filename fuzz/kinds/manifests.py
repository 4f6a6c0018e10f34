"""Manifests: inputs and partitions of other shapes, links, digests and counts."""

import json
from random import Random
from typing import Any, Final

from fuzz.case import Case
from fuzz.values import changed, dumped, misspelt
from gradmarket.market import manifest
from gradmarket.market.errors import JobRefused
from gradmarket.market.manifest import Manifest

REFUSED: Final = JobRefused
_DIGEST: Final = "blake3:" + "ab" * 32


def case(chance: Random) -> Case:
    whole = _honest(chance)
    draw = chance.random()
    if draw < 0.1:
        return Case(dumped(whole))
    return Case(dumped(changed(whole, chance)) if draw < 0.7 else misspelt(dumped(whole), chance))


def read(case: Case) -> Manifest:
    found = manifest.parse_manifest(case.data)
    assert manifest.parse_manifest(found.model_dump_json().encode()) == found
    return found


def _honest(chance: Random) -> dict[str, Any]:
    formats = ("safetensors", "npz", "npy", "parquet", "jsonl")
    partitions = [
        {"name": f"p{number}", "link": f"/v1/blobs/{_DIGEST}", "digest": _DIGEST, "bytes": 10, "rows": 4,
         "format": chance.choice(formats)}
        for number in range(chance.randrange(1, 4))
    ]  # fmt: skip
    x = {"dtype": chance.choice(("float32", "int64")), "shape": [8, 8], "classes": None}
    whole = {"inputs": {"x": x, "y": {"dtype": "int64", "shape": [], "classes": 10}}, "partitions": partitions}
    return dict(json.loads(json.dumps(whole)))
