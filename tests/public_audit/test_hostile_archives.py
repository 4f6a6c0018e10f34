"""Archives of a hostile mirror, whose bytes are few beside the memory that parsing them would take."""

import json

import pytest

from gradmarket.archives import archive_index
from gradmarket.archives.archive_index import ArchiveIndex, ArchiveRecords, parse_archive
from gradmarket.market.errors import Refused
from gradmarket.market.terms import JobId, blob_digest


def test_a_list_or_dictionary_of_wrong_items_ends_at_its_first_one() -> None:
    """Each further one took a kilobyte: a mirror's eight megabytes took seven gigabytes."""
    for field, items in (("leaves", [0] * 2_000), ("evidence", {str(number): 0 for number in range(2_000)})):
        with pytest.raises(Refused) as caught:
            parse_archive(json.dumps({field: items}).encode())
        assert "faults" not in str(caught.value), field


@pytest.mark.parametrize("item", ["{}", "0"])
def test_an_index_of_too_many_values_is_refused_before_it_is_parsed(item: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_index, "MOST_OBJECTS", 20)
    monkeypatch.setattr(archive_index, "MOST_COMMAS", 50)
    for count, refused in ((15, False), (60, True)):
        with pytest.raises(Refused) as caught:
            parse_archive(f'{{"unknown": [{", ".join([item] * count)}]}}'.encode())
        assert ("more than" in str(caught.value)) is refused


@pytest.mark.parametrize("limit", ["MAX_ANSWER", "MOST_VALUES"])
def test_evidence_longer_than_a_market_s_answer_is_refused(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mirror names any blob as the evidence of a task, and its digest is right."""
    data = b'{"waves": [' + b"0, " * 40 + b"0]}"
    index = ArchiveIndex.model_construct(evidence={"task": blob_digest(data)})
    records = ArchiveRecords(index, lambda _digest: data)
    for most, words in ((10**6, "is no evidence"), (20, "too long")):
        monkeypatch.setattr(archive_index, limit, most)
        with pytest.raises(Refused, match=words):
            records.task(JobId("job"), "task")
