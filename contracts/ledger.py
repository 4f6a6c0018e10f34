"""A read-only view of the contract's state. Money is in the job's units, times are Unix seconds.

Every method raises ChainUnreachable if the node does not answer, and ContractRefused (NoSuchJob) for an unknown job.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Final

from eth_typing import BlockNumber
from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak
from web3 import Web3
from web3.contract import Contract
from web3.types import BlockIdentifier, TxParams

from contracts.deployment import Deployment, market_at, market_events, token_at, verify_deployment
from contracts.rpc import call_views, node_errors
from gradmarket.market.signing import Domain, encode_word
from gradmarket.market.terms import Address, Amount, Hash, Units
from gradmarket.network.chain_errors import ForeignChain, NodeRefused


@dataclass(frozen=True, slots=True)
class JobOnChain:
    """The contract's struct Job. `batches` is the number of the next batch."""

    requester: Address
    expiry: int
    claim_until: int
    deposited: Units
    reserved: Units
    credited: Units
    batches: int
    unit: Amount
    bond: Units
    slash_window: int
    vest_window: int
    vest: Units
    contest_window: int
    decision_window: int
    sender: Address
    vest_quorum: Hash


@dataclass(frozen=True, slots=True)
class AccountOnChain:
    """A worker's account in a job."""

    reserved: Units
    settled: Units
    vouchered: Units
    withdrawn: Units
    """Paid out, or burnt after a ruling."""
    credited_at: int = 0
    """When the credit grew last."""

    @property
    def credited(self) -> Units:
        return min(max(self.settled, self.vouchered), self.reserved)

    @property
    def unpaid(self) -> Units:
        """The credit that is not withdrawn; in a job that vests, its last part is locked for a time."""
        return Units(self.credited - self.withdrawn)


@dataclass(frozen=True, slots=True)
class Block:
    number: int
    time: int
    hash: Hash


_JOB_FIELDS: Final = {re.sub("_(.)", lambda part: part[1].upper(), each.name): each.name for each in fields(JobOnChain)}
"""Maps the contract's member names to ours: claimUntil -> claim_until."""


class Ledger:
    def __init__(self, web3: Web3, deployment: Deployment) -> None:
        self.web3 = web3
        self.deployment = deployment
        self.market = market_at(web3, deployment.contract)
        self._market = self.market.functions
        self._token = token_at(web3, deployment.token).functions

    @cached_property
    def event_contract(self) -> Contract:
        return market_events(self.web3, self.deployment.contract)

    def verify(self) -> None:
        """Raises ForeignChain, naming the difference, unless the chain has the expected deployment."""
        verify_deployment(self.web3, self.deployment)

    def verify_instance(self) -> None:
        """Does the same by the contract's INSTANCE alone, which no other history of a chain has."""
        with node_errors():
            instance = bytes(self._market.INSTANCE().call())
        if instance != self.deployment.instance:
            raise ForeignChain("instance", self.deployment.instance.hex(), instance.hex())

    def domain(self) -> Domain:
        return self.deployment.domain

    def job(self, job_id: int, at: int | None = None) -> JobOnChain:
        """Returns the job now or as of block `at`; not every node knows old blocks."""
        with node_errors():
            members = self._market.job(job_id).call(block_identifier=_choose_block_identifier(at))._asdict()
            return JobOnChain(**{name: members[key] for key, name in _JOB_FIELDS.items()})

    def account(self, job_id: int, worker: Address, at: int | None = None) -> AccountOnChain:
        call: TxParams = {"to": self.deployment.contract, "data": _ACCOUNT + encode_word(job_id) + encode_word(worker)}
        with node_errors():
            return _decode_account(bytes(self.web3.eth.call(call, _choose_block_identifier(at))))

    def accounts(self, job_id: int, workers: Sequence[Address], at: int) -> dict[Address, AccountOnChain]:
        """Returns the workers' accounts as of block `at`, rpc.BATCH in each request."""
        data = [_ACCOUNT + encode_word(job_id) + encode_word(worker) for worker in workers]
        answers = call_views(self.web3, self.deployment.contract, data, at)
        return {worker: _decode_account(words) for worker, words in zip(workers, answers, strict=True)}

    def due(self, job_id: int, worker: Address) -> Units:
        """Returns the amount that `collect` would pay now: unpaid and not locked."""
        with node_errors():
            return Units(self._market.due(job_id, worker).call())

    def free(self, job_id: int) -> Units:
        """Returns the amount that the requester can withdraw now."""
        with node_errors():
            return Units(self._market.free(job_id).call())

    def payout_of(self, worker: Address) -> Address:
        with node_errors():
            return Address(self._market.payoutOf(worker).call())

    def payout_nonce(self, worker: Address) -> int:
        with node_errors():
            return int(self._market.payoutNonce(worker).call())

    def batch_root(self, job_id: int, batch: int) -> Hash:
        """Returns the batch's root; zeros if there was no such batch."""
        with node_errors():
            return Hash(bytes(self._market.batchRoot(job_id, batch).call()))

    def record_root(self, job_id: int, batch: int) -> Hash:
        """Returns the root that `settle_rooted` was given; zeros if there was no such batch."""
        with node_errors():
            return Hash(bytes(self._market.recordRoot(job_id, batch).call()))

    def min_window(self) -> int:
        """Returns the least number of seconds between a job's expiry and its claimUntil."""
        with node_errors():
            return int(self._market.minWindow().call())

    def balance(self, holder: Address) -> Amount:
        """Returns the balance in the token's smallest unit."""
        with node_errors():
            return Amount(self._token.balanceOf(holder).call())

    def allowance(self, owner: Address) -> Amount:
        """Returns how much the contract may transfer from `owner`, in the token's smallest unit."""
        with node_errors():
            return Amount(self._token.allowance(owner, self.deployment.contract).call())

    def decimals(self) -> int:
        with node_errors():
            return int(self._token.decimals().call())

    def symbol(self) -> str:
        with node_errors():
            return str(self._token.symbol().call())

    def gas_money(self, holder: Address) -> int:
        """Returns the balance for gas, in wei."""
        with node_errors():
            return int(self.web3.eth.get_balance(to_checksum_address(holder)))

    def nonce(self, sender: Address) -> int:
        """Returns the number of transactions of `sender` in mined blocks."""
        with node_errors():
            return int(self.web3.eth.get_transaction_count(to_checksum_address(sender), "latest"))

    def height(self) -> int:
        """Returns the newest block's number, without reading the block."""
        with node_errors():
            return int(self.web3.eth.block_number)

    def block_hash(self, number: int) -> Hash | None:
        """Returns the hash of a block; None where the chain has none of this number yet."""
        if self.height() < number:
            return None
        with node_errors():
            return Hash(bytes(self.web3.eth.get_block(number)["hash"]))

    def next_time(self) -> int:
        """Returns the time that a transaction sent now would see, in Unix seconds: the next block's.

        The newest block of a quiet chain may be old. Its time is the answer where the node knows no other.
        """
        newest = self.block().time
        try:
            with node_errors():
                return max(newest, int(self.web3.eth.get_block("pending")["timestamp"]))
        except NodeRefused:
            return newest

    def block(self) -> Block:
        with node_errors():
            latest = self.web3.eth.get_block("latest")
            return Block(int(latest["number"]), int(latest["timestamp"]), Hash(bytes(latest["hash"])))


_ACCOUNT: Final = keccak(text="account(uint256,address)")[:4]
_WORD: Final = 32


def _decode_account(words: bytes) -> AccountOnChain:
    """Decodes an account: one word for each member, in the contract's order, which is the same as ours."""
    if len(words) != _WORD * len(fields(AccountOnChain)):
        raise ForeignChain("account", "five words", f"{len(words)} bytes")
    starts = range(0, len(words), _WORD)
    return AccountOnChain(*(Units(int.from_bytes(words[start : start + _WORD], "big")) for start in starts))


def _choose_block_identifier(at: int | None) -> BlockIdentifier:
    return "latest" if at is None else BlockNumber(at)
