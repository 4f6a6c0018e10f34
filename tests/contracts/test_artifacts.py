"""The committed artifacts are compiled from the sources, and distinguish a true deployment from any other code."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts import build_artifacts
from contracts.artifact import FOLDER, load_artifact, masked_code_hash
from gradmarket.market.errors import NotFound
from tests.lanes import FULL


@FULL
def test_artifacts_are_what_the_sources_compile_to() -> None:
    for name, artifact in build_artifacts.build_all().items():
        committed = (FOLDER / f"{name}.json").read_text(encoding="utf-8")
        assert committed == build_artifacts.render_artifact(artifact), (
            f"{name}: run python -m contracts.build_artifacts"
        )


def test_the_code_fits_the_limit_of_eip_170() -> None:
    assert len(load_artifact("GradMarket").deployed_bytecode) <= 24_576


def test_an_unknown_artifact_is_not_found() -> None:
    with pytest.raises(NotFound):
        load_artifact("GradMarkt")


def test_immutables_do_not_overlap_and_lie_inside_the_code() -> None:
    artifact = load_artifact("GradMarket")
    ends = [reference.start + reference.length for reference in artifact.immutable_references]
    for (_, end), (following, _) in pairwise(zip(artifact.immutable_references, ends, strict=True)):
        assert end <= following.start
    assert ends[-1] <= len(artifact.deployed_bytecode)


@given(st.binary(min_size=32, max_size=32))
def test_code_matches_whatever_its_immutables_are(value: bytes) -> None:
    artifact = load_artifact("GradMarket")
    code = bytearray(artifact.deployed_bytecode)
    for reference in artifact.immutable_references:
        code[reference.start : reference.start + reference.length] = value[: reference.length]
    assert artifact.matches(bytes(code))
    assert masked_code_hash(bytes(code), artifact.immutable_references) == artifact.code_hash


@given(st.data())
def test_one_other_byte_does_not_match(data: st.DataObject) -> None:
    artifact = load_artifact("GradMarket")
    masked = {
        place
        for reference in artifact.immutable_references
        for place in range(reference.start, reference.start + reference.length)
    }
    places = st.integers(0, len(artifact.deployed_bytecode) - 1).filter(lambda place: place not in masked)
    place = data.draw(places)
    code = bytearray(artifact.deployed_bytecode)
    code[place] ^= data.draw(st.integers(1, 255))
    assert not artifact.matches(bytes(code))
    assert not artifact.matches(artifact.deployed_bytecode + b"\0")
