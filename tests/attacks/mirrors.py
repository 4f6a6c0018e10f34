"""A mirror of an archive that serves other bytes than those that are asked for by their digest."""

from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from gradmarket.archives.archive_index import BLOBS
from gradmarket.archives.mirrors import NOWHERE, MirrorSet, open_mirror
from gradmarket.compute.cache import Cache
from gradmarket.compute.fetch import Fetcher
from gradmarket.market.errors import Refused
from gradmarket.market.terms import blob_digest
from tests.attacks.registry import attack
from tests.attacks.scene import Scene
from tests.public_audit.folder_server import serve_folder

EVIDENCE = b"what an audit reads of a task" * 1000


@attack("a mirror that serves other bytes", "right bytes; the liar is named; alone refused; cut short refused")
def one_of_two_mirrors_lies(_scene: Scene) -> str:
    """The liar is asked first, over HTTP; an honest mirror beside it is enough, and without one nothing is read."""
    digest, seen = blob_digest(EVIDENCE), list[str]()
    with TemporaryDirectory() as place, ExitStack() as stack:
        root = Path(place)
        for name, data in {"liar": EVIDENCE[:-1] + b"!", "short": EVIDENCE[:-1], "honest": EVIDENCE}.items():
            (root / name / BLOBS).mkdir(parents=True)
            (root / name / BLOBS / digest).write_bytes(data)
        origin, cache = stack.enter_context(serve_folder(root)), Cache(root / "cache", 2**20)
        liar, short, honest = (open_mirror(f"{origin}/{name}", cache, stack) for name in ("liar", "short", "honest"))
        both = MirrorSet([liar, honest])
        for alone, words in ((liar, "alone refused"), (short, "cut short refused")):
            try:
                MirrorSet([alone]).read_blob(digest)
            except Refused:
                seen.append(words)
        fetcher = Fetcher(cache, NOWHERE, cache.limit)
        stack.callback(fetcher.close)
        both.fill(fetcher, [digest])
        right = bytes(fetcher.blob(digest)) == EVIDENCE
        named = [trouble.startswith(f"{origin}/liar: ") for trouble in both.troubles] == [True]
    return "; ".join([*["right bytes"] * right, *["the liar is named"] * named, *seen])
