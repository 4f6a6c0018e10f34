"""A lease on sending: of all processes that share the database, one at a time does the chain work.

Safety does not depend on it: the tables' unique keys let a nonce and a batch number be used once. The lease keeps two
processes from doing the same work in vain.
"""

from requester.chain.chain_context import ChainContext
from requester.store import leader_leases


def renew_leader_lease(chain: ChainContext) -> bool:
    """Takes or renews the lease for the chain's sender; returns False while another process has it."""
    name = f"chain:{chain.sender}"
    return leader_leases.renew_lease(chain.begin, chain.reading, name, chain.holder, chain.clock(), chain.policy.duty_s)


def release_leader_lease(chain: ChainContext) -> None:
    """Releases the lease, so that the next process need not wait."""
    leader_leases.release_lease(chain.begin, f"chain:{chain.sender}", chain.holder)
