"""The contract's ledger once more, small enough to be read at once: each move's effect and refusals.

Nothing here talks to a chain. Money is in the token's smallest unit throughout (the jobs' unit is 1), `now` is the
block's time. A refused move leaves everything as it was: every check comes before every change.
"""

from dataclasses import dataclass, field


class Refusal(Exception):
    """The move reverts, by the name of the contract's error."""


def need(condition: bool, error: str) -> None:
    if not condition:
        raise Refusal(error)


@dataclass
class Account:
    reserved: int = 0
    settled: int = 0
    vouchered: int = 0
    withdrawn: int = 0
    credited_at: int = 0

    @property
    def credited(self) -> int:
        """Batches and vouchers count the same earnings, and only the reservation is paid."""
        return min(max(self.settled, self.vouchered), self.reserved)


@dataclass
class Job:
    requester: str
    expiry: int
    claim_until: int
    deposited: int
    slash_window: int
    window: int
    bond: int
    vest: int = 0
    batches: int = 0
    refunded: bool = False
    accounts: dict[str, Account] = field(default_factory=dict)

    def account(self, worker: str) -> Account:
        return self.accounts.setdefault(worker, Account())

    @property
    def reserved(self) -> int:
        """Once refunded, nothing is set aside but the credit."""
        return self.credited if self.refunded else sum(account.reserved for account in self.accounts.values())

    @property
    def credited(self) -> int:
        return sum(account.credited for account in self.accounts.values())

    def is_locked(self, account: Account, now: int) -> bool:
        """Pay waits as long as the shortest window of the contract, counted from the last credit."""
        return self.vest > 0 and now <= account.credited_at + self.window

    def locked(self, account: Account, accused: int, now: int) -> int:
        """Once the wait is over, accused pay stays."""
        return min(self.vest, account.credited - account.withdrawn) if self.is_locked(account, now) else accused

    def free(self, now: int) -> int:
        """Returns the amount that the requester can take out."""
        return self.deposited - (self.credited if now > self.claim_until else self.reserved)


@dataclass
class Escrow:
    """`wallets` are the token balances of everybody but the contract, which has `held`."""

    wallets: dict[str, int]
    min_window: int
    jobs: dict[int, Job] = field(default_factory=dict)
    payouts: dict[str, str] = field(default_factory=dict)
    nonces: dict[tuple[int, str], int] = field(default_factory=dict)
    payout_nonces: dict[str, int] = field(default_factory=dict)

    @property
    def held(self) -> int:
        return sum(job.deposited - sum(a.withdrawn for a in job.accounts.values()) for job in self.jobs.values())

    # --- escrow

    def open_job(self, by: str, deposit: int, expiry: int, claim_until: int, bond: int, vest: int, now: int) -> None:
        need(expiry > now and claim_until >= expiry + self.min_window, "BadTerms")
        need(self.wallets[by] >= deposit, "ERC20InsufficientBalance")
        self.wallets[by] -= deposit
        slash_window = 2 * self.min_window if bond else 0
        self.jobs[len(self.jobs) + 1] = Job(by, expiry, claim_until, deposit, slash_window, self.min_window, bond, vest)

    def top_up(self, by: str, job_id: int, amount: int, now: int) -> None:
        job = self.job(job_id)
        need(now <= job.expiry, "TooLate")
        need(self.wallets[by] >= amount, "ERC20InsufficientBalance")
        self.wallets[by] -= amount
        job.deposited += amount

    def withdraw_free(self, by: str, job_id: int, amount: int) -> None:
        job = self.own_job(by, job_id)
        need(amount <= job.deposited - job.reserved, "Overdrawn")
        self.give_back(job, amount)

    def refund(self, by: str, job_id: int, now: int) -> None:
        job = self.own_job(by, job_id)
        need(now > job.claim_until, "TooEarly")
        job.refunded = True
        self.give_back(job, job.deposited - job.credited)

    # --- reservations

    def reserve(self, by: str, job_id: int, rows: list[tuple[str, int]], now: int) -> None:
        job = self.job(job_id)
        need(by == job.requester, "NotSender")
        need(now <= job.expiry, "TooLate")
        need(sum(amount for _, amount in rows) <= job.deposited - job.reserved, "Overdrawn")
        for worker, amount in rows:
            account = job.account(worker)
            before, account.reserved = account.credited, account.reserved + amount
            self.stamp(account, before, now)

    def release(self, worker: str, job_id: int, reserved: int, now: int) -> None:
        job = self.job(job_id)
        need(now <= job.claim_until, "TooLate")
        account = job.account(worker)
        account.reserved = min(max(reserved, account.credited), account.reserved)
        self.nonces[job_id, worker] = self.nonces.get((job_id, worker), 0) + 1

    def close_job(self, by: str, job_id: int, releases: list[tuple[str, int, int, bool]], now: int) -> None:
        """Each release: worker, reserved, nonce, and whether the worker signed it."""
        job = self.own_job(by, job_id)
        need(now <= job.claim_until, "TooLate")
        for worker, reserved, nonce, signed in releases:
            if signed and nonce == self.nonces.get((job_id, worker), 0):
                self.release(worker, job_id, reserved, now)
        job.expiry = min(job.expiry, now - 1)
        self.give_back(job, job.deposited - job.reserved)

    # --- settlement and vouchers

    def settle(self, by: str, job_id: int, batch: int, sums: list[tuple[str, int]], now: int) -> None:
        job = self.job(job_id)
        need(by == job.requester, "NotSender")
        need(now <= job.claim_until, "TooLate")
        need(batch == job.batches, "WrongBatch")
        for worker, units in sums:
            account = job.account(worker)
            before, account.settled = account.credited, account.settled + units
            self.stamp(account, before, now)
        job.batches += 1

    def redeem(self, job_id: int, worker: str, cumulative: int, valid: bool, now: int) -> None:
        job = self.job(job_id)
        need(now <= job.claim_until, "TooLate")
        need(valid, "BadSignature")
        account = job.account(worker)
        before, account.vouchered = account.credited, max(account.vouchered, cumulative)
        self.stamp(account, before, now)
        self.collect(job_id, worker, now)

    def redeem_batch(self, rows: list[tuple[int, str, int, bool]], now: int) -> None:
        for row in rows:
            try:
                self.redeem(*row, now)
            except Refusal:
                continue

    def collect(self, job_id: int, worker: str, now: int) -> None:
        paid = self.due(job_id, worker, now)
        self.wallets[self.payouts.get(worker, worker)] += paid
        self.job(job_id).account(worker).withdrawn += paid

    def due(self, job_id: int, worker: str, now: int) -> int:
        job = self.job(job_id)
        account = job.account(worker)
        return account.credited - account.withdrawn - job.locked(account, self.accused_pay(job_id, worker), now)

    def accused_pay(self, job_id: int, worker: str) -> int:
        return 0

    def stamp(self, account: Account, before: int, now: int) -> None:
        if account.credited > before:
            account.credited_at = now

    def set_payout(self, worker: str, payout: str, signed: bool) -> None:
        need(signed, "BadSignature")
        self.payouts[worker] = payout
        self.payout_nonces[worker] = self.payout_nonces.get(worker, 0) + 1

    # --- parts of several moves

    def job(self, job_id: int) -> Job:
        need(job_id in self.jobs, "NoSuchJob")
        return self.jobs[job_id]

    def own_job(self, by: str, job_id: int) -> Job:
        job = self.job(job_id)
        need(by == job.requester, "NotRequester")
        return job

    def give_back(self, job: Job, amount: int) -> None:
        job.deposited -= amount
        self.wallets[job.requester] += amount
