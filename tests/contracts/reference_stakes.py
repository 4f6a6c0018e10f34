"""The reference ledger's other half: stakes, accusations and their ends. Lost stakes are burnt."""

from dataclasses import dataclass, field

from tests.contracts.reference import Escrow, need


@dataclass
class Exposure:
    at_risk: int
    locked_until: int = 0


@dataclass
class Case:
    job: int
    worker: str
    amount: int
    until: int
    stage: str = "open"
    vested: bool = False


Key = tuple[int, str, int]
"""A case: its job, its worker, and the number of the event; of a case about locked pay, its complement."""


@dataclass
class Books(Escrow):
    stakes: dict[str, int] = field(default_factory=dict)
    exposures: dict[tuple[int, str], Exposure] = field(default_factory=dict)
    cases: dict[Key, Case] = field(default_factory=dict)
    to_burn: int = 0
    burnt: int = 0

    @property
    def held(self) -> int:
        bonds = sum(self.jobs[case.job].bond for case in self.cases.values() if case.stage != "closed")
        return super().held + sum(self.stakes.values()) + bonds + self.to_burn

    def stake(self, worker: str, amount: int) -> None:
        need(self.wallets[worker] >= amount, "ERC20InsufficientBalance")
        need(amount > 0, "NothingArrived")
        self.wallets[worker] -= amount
        self.stakes[worker] = self.stakes.get(worker, 0) + amount

    def unstake(self, worker: str, amount: int) -> None:
        self.need_unexposed(worker, amount)
        self.stakes[worker] = self.stakes.get(worker, 0) - amount
        self.wallets[worker] += amount

    def join(self, worker: str, job_id: int, at_risk: int, now: int) -> None:
        job = self.job(job_id)
        need(now <= job.expiry, "TooLate")
        need(job.slash_window > 0 and at_risk > 0, "BadTerms")
        need((job_id, worker) not in self.exposures, "AlreadyJoined")
        self.need_unexposed(worker, at_risk)
        self.exposures[job_id, worker] = Exposure(at_risk)

    def leave(self, worker: str, job_id: int, now: int) -> None:
        exposure = self.exposure(job_id, worker)
        need(exposure.locked_until == 0, "AlreadyLeft")
        exposure.locked_until = now + self.jobs[job_id].slash_window

    def free_exposure(self, job_id: int, worker: str, now: int) -> None:
        exposure = self.exposure(job_id, worker)
        need(exposure.locked_until != 0, "NotLeft")
        need(now > exposure.locked_until, "TooEarly")
        need(not self.open_cases(job_id, worker), "CaseOpen")
        del self.exposures[job_id, worker]

    def accuse(self, by: str, job_id: int, worker: str, amount: int, event: int, now: int) -> None:
        job = self.own_job(by, job_id)
        need(self.wallets[by] >= job.bond, "ERC20InsufficientBalance")
        exposure = self.exposure(job_id, worker)
        need(amount > 0, "BadAccusation")
        need(exposure.locked_until == 0 or now <= exposure.locked_until, "TooLate")
        accused = sum(case.amount for case in self.open_cases(job_id, worker))
        need(amount <= exposure.at_risk - accused, "Overdrawn")
        need((job_id, worker, event) not in self.cases, "BadAccusation")
        self.wallets[by] -= job.bond
        self.cases[job_id, worker, event] = Case(job_id, worker, amount, now + job.window)

    def accuse_vested(self, by: str, job_id: int, worker: str, amount: int, event: int, now: int) -> None:
        job = self.own_job(by, job_id)
        need(self.wallets[by] >= job.bond, "ERC20InsufficientBalance")
        need(amount > 0, "BadAccusation")
        account, accused = job.account(worker), self.accused_pay(job_id, worker)
        need(now <= account.credited_at + (job.window if job.vest else 0), "TooLate")
        need(amount <= job.locked(account, accused, now) - accused, "Overdrawn")
        need((job_id, worker, ~event) not in self.cases, "BadAccusation")
        self.wallets[by] -= job.bond
        self.cases[job_id, worker, ~event] = Case(job_id, worker, amount, now + job.window, "contested", vested=True)

    def accused_pay(self, job_id: int, worker: str) -> int:
        open_ones = [case for case in self.cases.values() if case.vested and case.stage != "closed"]
        return sum(case.amount for case in open_ones if (case.job, case.worker) == (job_id, worker))

    def contest(self, by: str, key: Key, now: int) -> None:
        case = self.case(key, "open")
        need(by == case.worker, "NotAccused")
        self.open_decision(case, now)

    def contest_for(self, key: Key, named: bool, now: int) -> None:
        case = self.case(key, "open")
        need(named, "BadSignature")
        self.open_decision(case, now)

    def open_decision(self, case: Case, now: int) -> None:
        need(now <= case.until, "TooLate")
        case.stage, case.until = "contested", now + self.jobs[case.job].window

    def decide(self, key: Key, guilty: bool, enough: bool, now: int) -> None:
        case = self.case(key, "contested")
        need(now <= case.until, "TooLate")
        need(enough, "NoQuorum")
        self.end(case, slashed=guilty, bond_back=guilty)

    def close_case(self, key: Key, now: int) -> None:
        found = self.cases.get(key)
        need(found is not None and found.stage != "closed", "WrongStage")
        assert found is not None
        need(now > found.until, "TooEarly")
        self.end(found, slashed=found.stage == "open", bond_back=not found.vested)

    def burn(self) -> None:
        self.burnt, self.to_burn = self.burnt + self.to_burn, 0

    def exposure(self, job_id: int, worker: str) -> Exposure:
        need((job_id, worker) in self.exposures, "NotJoined")
        return self.exposures[job_id, worker]

    def exposed(self, worker: str) -> int:
        return sum(exposure.at_risk for (_, who), exposure in self.exposures.items() if who == worker)

    def need_unexposed(self, worker: str, amount: int) -> None:
        need(amount <= self.stakes.get(worker, 0) - self.exposed(worker), "Overdrawn")

    def open_cases(self, job_id: int, worker: str) -> list[Case]:
        staked = [c for c in self.cases.values() if not c.vested and c.stage != "closed"]
        return [c for c in staked if (c.job, c.worker) == (job_id, worker)]

    def case(self, key: Key, stage: str) -> Case:
        need(key in self.cases and self.cases[key].stage == stage, "WrongStage")
        return self.cases[key]

    def end(self, case: Case, slashed: bool, bond_back: bool) -> None:
        """Slashed and forfeited amounts are burnt; a bond goes back to the requester's stake."""
        case.stage = "closed"
        job = self.jobs[case.job]
        if slashed:
            if case.vested:
                job.account(case.worker).withdrawn += case.amount
            else:
                self.lower(case)
                self.stakes[case.worker] -= case.amount
            self.to_burn += case.amount
        if bond_back:
            self.stakes[job.requester] = self.stakes.get(job.requester, 0) + job.bond
        else:
            self.to_burn += job.bond

    def lower(self, case: Case) -> None:
        """A worker with nothing left at risk is out of the job."""
        exposure = self.exposures[case.job, case.worker]
        exposure.at_risk -= case.amount
        if exposure.at_risk == 0:
            del self.exposures[case.job, case.worker]
