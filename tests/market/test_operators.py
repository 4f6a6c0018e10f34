"""The records that a worker's answers affect: its wallet's and its proven operator's, through any moves."""

from hypothesis import given
from hypothesis import strategies as st

from gradmarket.market.features import reputation
from gradmarket.market.features.audits.class_checks import count_surely_separate
from gradmarket.market.rules import assignment
from gradmarket.market.rules.assignment import Party, is_same_party
from gradmarket.market.terms import Address

WALLETS = ("w1", "w2", "w3")
KEYS = ("x", "y")


def party(worker: str, operator: str | None = None, payout: str | None = None) -> Party:
    return Party(Address(worker), operator or worker, Address(payout or operator or worker), None)


class Books:
    """Bars by key, kept by the rules alone."""

    def __init__(self) -> None:
        self.operator = {wallet: wallet for wallet in WALLETS}
        self.since: dict[str, float] = {}

    def lies(self, wallet: str, at: float) -> None:
        self.since |= dict.fromkeys(assignment.list_answerable_keys([party(wallet, self.operator[wallet])]), at)

    def moves(self, wallet: str, key: str | None) -> None:
        left, after = self.operator[wallet], assignment.operator_of(wallet, key or wallet, key is not None)
        if left not in (after, wallet):
            bar = reputation.after_leaving(self.since.get(wallet), self.since.get(left))
            self.since |= {} if bar is None else {wallet: bar}
        self.operator[wallet] = after

    def barred(self, wallet: str) -> bool:
        return assignment.is_barred(party(wallet, self.operator[wallet]), self.since.keys())


LIES = st.tuples(st.just("lies"), st.sampled_from(WALLETS))
MOVES = st.tuples(st.just("moves"), st.sampled_from(WALLETS), st.sampled_from([None, *KEYS]))


@given(st.lists(st.one_of(LIES, MOVES), max_size=25))
def test_no_move_lifts_a_bar_or_bars_an_operator_without_a_liar(steps: list[tuple[str, ...]]) -> None:
    books, vouched = Books(), dict.fromkeys(KEYS, False)
    for at, (act, wallet, *to) in enumerate(steps):
        before = {name: books.barred(name) for name in WALLETS}
        if act == "lies":
            books.lies(wallet, float(at))
            vouched |= {key: True for key in KEYS if books.operator[wallet] == key}
        else:
            books.moves(wallet, to[0])
            assert all(books.barred(other) == before[other] for other in WALLETS if other != wallet)
        assert all(books.barred(name) for name in WALLETS if before[name]), "a bar ends by time alone"
        assert {key for key in KEYS if key in books.since} == {key for key in KEYS if vouched[key]}


@given(st.lists(MOVES, max_size=20), st.lists(MOVES, max_size=20))
def test_a_lie_bars_its_wallet_and_its_operator_of_then_wherever_they_go(
    first: list[tuple[str, ...]], then: list[tuple[str, ...]]
) -> None:
    books = Books()
    for _, wallet, key in first:
        books.moves(wallet, key)
    answered_for = books.operator["w1"]
    books.lies("w1", 1.0)
    for _, wallet, key in then:
        books.moves(wallet, key)
        assert books.barred("w1")
        assert all(books.barred(name) for name in WALLETS if books.operator[name] == answered_for)
    if answered_for == "w1" and all(key is None for _, _, key in then):
        assert not any(books.barred(name) for name in ("w2", "w3"))


def test_a_claim_reaches_neither_record_nor_bar() -> None:
    assert assignment.operator_of("stranger", "victim", False) == "stranger"
    stranger = party("stranger", payout="victim")
    assert assignment.list_answerable_keys([stranger]) == {"stranger"}
    assert not assignment.is_barred(party("victim"), {"stranger"})
    assert not assignment.is_barred(stranger, {"victim"})
    assert reputation.after_leaving(None, None) is None
    assert reputation.after_leaving(3.0, 2.0) == reputation.after_leaving(None, 3.0) == 3.0


def test_parties_that_share_anything_are_not_surely_separate() -> None:
    assert count_surely_separate([]) == 0
    assert count_surely_separate([party("a"), party("b"), party("a", operator="k")]) == 2
    assert count_surely_separate([party("a", payout="p"), party("b", payout="q"), party("c", payout="p")]) == 2
    assert count_surely_separate([party("a"), party("c"), party("c", operator="a")]) == 1, (
        "the last links the first two"
    )


def test_one_payout_is_one_party_with_or_without_consent() -> None:
    claimed, other = party("a", payout="p"), party("b", payout="p")
    for kind in ("payout", "operator"):
        assert is_same_party(claimed, other, (kind,))
        assert is_same_party(party("a", operator="p"), other, (kind,))
        assert not is_same_party(claimed, party("b", payout="q"), (kind,))
