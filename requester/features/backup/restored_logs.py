"""A restored service admits in each job's log where its copy ends: what it told after that is lost, and no lie."""

import sqlite3
from contextlib import closing
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Final

from gradmarket.market.features.log.job_log import RESTORED, encode_restart
from gradmarket.market.features.log.merkle import GrowingTree, hash_leaf
from gradmarket.market.messages import LogHead
from gradmarket.market.terms import Hash
from gradmarket.market.wire.log_proofs import LeafKind

LEAVES: Final = """
    SELECT jobs.id, jobs.chain_job, log_leaves.hash FROM log_leaves JOIN jobs ON jobs.id = log_leaves.job_id
    ORDER BY jobs.id, log_leaves.number
"""


def admit_restore(database: Path, at: int) -> int:
    """Adds a leaf to each log that the database has, `at` in Unix seconds; returns to how many.

    A database without logs, of an earlier release, is left as it is.
    """
    with closing(sqlite3.connect(database)) as connection, connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'log_leaves'").fetchone():
            return 0
        logs = [(key, list(rows)) for key, rows in groupby(connection.execute(LEAVES).fetchall(), itemgetter(0, 1))]
        for (job, chain_job), rows in logs:
            tree = GrowingTree(leaf for _, _, leaf in rows)
            kept = LogHead(chain_job or 0, len(tree), Hash(tree.compute_root()))
            leaf = hash_leaf(encode_restart(RESTORED, kept, at))
            row = (job, len(tree), LeafKind.RESTART.value, f"{RESTORED}/{at}", leaf)
            connection.execute("INSERT INTO log_leaves (job_id, number, kind, about, hash) VALUES (?, ?, ?, ?, ?)", row)
    return len(logs)
