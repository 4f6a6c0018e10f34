"""Moves of stakes and cases, played on both sides as well."""

from eth_utils.crypto import keccak
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from contracts import calls
from gradmarket.market.messages import Ruling, WatchMandate
from gradmarket.market.terms import Address, Amount, Hash, Units
from tests.contracts.play import JURY, WHO, Play, amounts, jobs, mostly, requesters, workers
from tests.contracts.reference_stakes import Key


class PlayWithStakes(Play):
    @initialize()
    def first_job(self) -> None:
        super().first_job()
        self.stake("wim", 100)
        self.join("wim", 1, 50)

    @rule(worker=workers, amount=amounts)
    def stake(self, worker: str, amount: int) -> None:
        call = calls.stake(self.market, Amount(amount))
        self.move(worker, call, self.books.stake, WHO[worker], amount, timed=False)

    @rule(worker=workers, amount=amounts)
    def unstake(self, worker: str, amount: int) -> None:
        call = calls.unstake(self.market, Amount(amount))
        self.move(worker, call, self.books.unstake, WHO[worker], amount, timed=False)

    @rule(worker=workers, job=jobs, at_risk=amounts)
    def join(self, worker: str, job: int, at_risk: int) -> None:
        call = calls.join_job(self.market, job, Amount(at_risk), calls.quorum_of(JURY, 2))
        self.move(worker, call, self.books.join, WHO[worker], job, at_risk)

    @rule(worker=workers, job=jobs)
    def leave(self, worker: str, job: int) -> None:
        self.move(worker, calls.leave_job(self.market, job), self.books.leave, WHO[worker], job)

    @rule(worker=workers, job=jobs)
    def free_exposure(self, worker: str, job: int) -> None:
        call = calls.free_exposure(self.market, job, WHO[worker])
        self.move("rob", call, self.books.free_exposure, job, WHO[worker])

    @rule(by=requesters, job=jobs, worker=workers, amount=amounts, event=st.integers(0, 2))
    def accuse(self, by: str, job: int, worker: str, amount: int, event: int) -> None:
        call = calls.accuse(self.market, job, WHO[worker], Amount(amount), _event(event))
        self.move(by, call, self.books.accuse, WHO[by], job, WHO[worker], amount, event)

    @rule(by=requesters, job=jobs, worker=workers, amount=st.integers(0, 20), event=st.integers(0, 2))
    def accuse_vested(self, by: str, job: int, worker: str, amount: int, event: int) -> None:
        call = calls.accuse_vested(self.market, job, WHO[worker], Units(amount), _event(event))
        self.move(by, call, self.books.accuse_vested, WHO[by], job, WHO[worker], amount, event)

    @rule(by=workers, data=st.data())
    def contest(self, by: str, data: st.DataObject) -> None:
        key = self.case(data)
        self.move(by, calls.contest(self.market, _case(key)), self.books.contest, WHO[by], key)

    @rule(data=st.data(), honest=mostly)
    def contest_for(self, data: st.DataObject, honest: bool) -> None:
        """Dishonest: the mandate is for another watcher."""
        key = self.case(data)
        (accused,) = (name for name, address in WHO.items() if address == key[1])
        mandate = WatchMandate(WHO[accused], WHO["rob" if honest else "sly"])
        call = calls.contest_for(self.market, _case(key), self.signed(accused, mandate))
        self.move("rob", call, self.books.contest_for, key, honest)

    @rule(data=st.data(), guilty=st.booleans(), honest=mostly)
    def decide(self, data: st.DataObject, guilty: bool, honest: bool) -> None:
        """Dishonest: one validator signs twice."""
        key = self.case(data)
        case = self.books.cases.get(key)
        ruling = Ruling(_case(key), Amount(case.amount if case else 0), guilty)
        rulings = [self.signed(name, ruling) for name in ("judge", "juror" if honest else "judge")]
        call = calls.decide(self.market, _case(key), guilty, JURY, 2, rulings)
        self.move("rob", call, self.books.decide, key, guilty, honest)

    @rule(data=st.data())
    def close_case(self, data: st.DataObject) -> None:
        key = self.case(data)
        self.move("rob", calls.close_case(self.market, _case(key)), self.books.close_case, key)

    @rule()
    def burn(self) -> None:
        self.move("rob", calls.burn(self.market), self.books.burn, timed=False)

    def case(self, data: st.DataObject) -> Key:
        """One that there is, or else one that there is not."""
        return data.draw(st.sampled_from(sorted(self.books.cases) or [(1, WHO["zoe"], 0)]))


def _event(number: int) -> Hash:
    return Hash(keccak(text=f"event {number}"))


def _case(key: Key) -> Hash:
    job, worker, event = key
    if event < 0:
        return calls.vested_case_id(job, Address(worker), _event(~event))
    return calls.case_id(job, Address(worker), _event(event))
