"""Wallets that are signed in past the door: thousands of signatures would take minutes."""

import time

from benchmarks.rig.service import Service
from gradmarket.market.terms import Address
from requester.api.auth_routes import WORKER
from requester.store import earned_rows, identities
from requester.store.session import open_engine, sessions_of
from requester.store.work import begin_work

DAY_S = 86_400


def sign_in_wallets(here: Service, count: int, job: str | None = None) -> list[tuple[Address, str]]:
    """Returns each wallet's address and token; with `job`, each has an account in it."""
    database, now, signed_in = open_engine(here.address), time.time(), []
    with begin_work(sessions_of(database)) as work:
        for number in range(1, count + 1):
            address = Address(f"0x{number:040x}")
            identities.sign_in(work, address, address, "", now)
            if job is not None:
                work.flush()
                earned_rows.load_or_create_account(work, job, address)
            signed_in.append((address, identities.issue_token(work, WORKER, address, now + DAY_S, now)))
    database.dispose()
    return signed_in
