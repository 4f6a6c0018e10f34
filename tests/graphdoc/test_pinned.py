"""A card's arena: exactly the mapped memory is registered with the driver, and answers are written into it."""

import ctypes
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from graphdoc.passes import numpy_of
from graphdoc.runner.arena import Arena, Placement
from graphdoc.runner.pinned import PinnedArena

SMALL, LARGE = Placement("w", "float32", (4,), 0), Placement("w", "float32", (2**20,), 64)


@dataclass
class Pages:
    """A stand-in for the driver: memory that is registered can be read, and no memory is registered twice."""

    works: bool = True
    held: dict[int, int] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)

    def register(self, address: int, size: int) -> bool:
        ctypes.string_at(address, size)
        assert address not in self.held
        self.calls.append("register")
        if self.works:
            self.held[address] = size
        return self.works

    def unregister(self, address: int) -> None:
        ctypes.string_at(address, self.held.pop(address))
        self.calls.append("unregister")

    def holds(self, array: np.ndarray) -> bool:
        begin, end = array.ctypes.data, array.ctypes.data + array.nbytes
        return any(start <= begin and end <= start + size for start, size in self.held.items())


@pytest.fixture(params=[True, False], ids=["registers", "refuses"])
def pages(request: pytest.FixtureRequest) -> Pages:
    return Pages(works=request.param)


@pytest.fixture
def arena(pages: Pages) -> PinnedArena:
    return PinnedArena(Arena.create().descriptor, pages)


def test_each_mapping_is_registered_as_long_as_it_exists(arena: PinnedArena, pages: Pages) -> None:
    assert pages.calls == []
    for place in (SMALL, LARGE):
        arena.reserve(place.end)
        arena.write((place,), {"w": np.full(place.shape, 3, np.float32)})
        (view,) = arena.views((place,)).values()
        assert view[0] == 3
        assert pages.holds(view) == pages.works
    assert pages.calls == (["register", "unregister", "register"] if pages.works else ["register"] * 2)
    arena.close()
    assert pages.held == {}


def test_an_answer_is_written_where_it_is_read(arena: PinnedArena) -> None:
    places = (SMALL, Placement("loss", "float32", (), 64))
    arena.reserve(128)
    views = arena.views(places)
    tensors = {"w": torch.arange(8.0)[::2], "loss": torch.tensor(0.5), "other": torch.ones(2)}
    found = numpy_of(tensors, views)
    assert found["w"] is views["w"]
    assert found["other"].tolist() == [1.0, 1.0]
    assert {name: array.tolist() for name, array in arena.read(places).items()} == {"w": [0, 2, 4, 6], "loss": 0.5}
    tensors["w"] += 1
    assert arena.read(places)["w"].tolist() == [0, 2, 4, 6]
    arena.close()
