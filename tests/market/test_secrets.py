"""Seals, wave secrets and seeds: a worker can check them, and neither side can choose them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradmarket.market.errors import SignatureRefused
from gradmarket.market.rules import secrets
from gradmarket.market.terms import Address, Hash, domain_hash

hashes = st.binary(min_size=32, max_size=32).map(Hash)
ONE, OTHER = Address("0x" + "1" * 40), Address("0x" + "2" * 40)


@given(hashes, st.integers(1, 8))
def test_every_wave_opens_the_link_behind_the_one_before(secret: Hash, waves: int) -> None:
    anchor = secrets.compute_anchor(secret, waves)
    for number, link in enumerate(secrets.derive_links(secret, waves)):
        assert secrets.leads_to(link, number, anchor)
        assert not secrets.leads_to(link, number + 1, anchor)


@given(hashes, hashes)
def test_a_requester_cannot_open_another_secret(secret: Hash, other: Hash) -> None:
    anchor = secrets.compute_anchor(secret, 3)
    links = secrets.derive_links(secret, 3)
    assert not secrets.leads_to(links[1], 0, anchor)
    assert other == links[0] or not secrets.leads_to(other, 0, anchor)


@given(hashes, st.integers(-(2**70), -1) | st.integers(secrets.MAX_LINKS, 2**70))
def test_a_number_that_no_chain_has_is_not_followed(secret: Hash, number: int) -> None:
    assert not secrets.leads_to(secret, number, secrets.compute_anchor(secret, 1))


@given(hashes, hashes, hashes, hashes)
def test_a_seal_is_bound_to_offer_worker_salt_and_root(offer: Hash, salt: Hash, root: Hash, other: Hash) -> None:
    seal = secrets.seal_commitment(offer, ONE, salt, root)
    assert seal == secrets.seal_commitment(offer, ONE, salt, root)
    assert seal != secrets.seal_commitment(offer, OTHER, salt, root), "a copied commitment would open for the copier"
    for changed in ((other, salt, root), (offer, other, root), (offer, salt, other)):
        if changed != (offer, salt, root):
            assert seal != secrets.seal_commitment(changed[0], ONE, changed[1], changed[2])


def test_a_seal_takes_nothing_shorter_than_a_hash() -> None:
    with pytest.raises(SignatureRefused):
        secrets.seal_commitment(Hash(b"o" * 32), ONE, Hash(b""), Hash(b"r" * 32))


@given(st.lists(st.tuples(st.sampled_from([ONE, OTHER]), hashes), max_size=6), st.randoms(use_true_random=False))
def test_the_set_of_commitments_has_one_digest_in_any_order(sealed, random) -> None:  # type: ignore[no-untyped-def]
    shuffled = list(sealed)
    random.shuffle(shuffled)
    assert secrets.digest_of(sealed) == secrets.digest_of(shuffled)


@given(hashes, hashes)
def test_the_seed_moves_with_every_commitment(link: Hash, sealed: Hash) -> None:
    alone = secrets.digest_of([(ONE, sealed)])
    joined = secrets.digest_of([(ONE, sealed), (OTHER, sealed)])
    assert secrets.wave_seed(link, alone) != secrets.wave_seed(link, joined)


def test_no_two_lists_share_a_preimage() -> None:
    assert domain_hash("a", b"bc", b"d") != domain_hash("a", b"b", b"cd") != domain_hash("ab", b"c", b"d")


def test_task_seeds_are_pinned() -> None:
    assert secrets.task_seed(0, 0, 0) != secrets.task_seed(0, 0, 1) != secrets.task_seed(0, 1, 0)
    assert secrets.task_seed(7, 3, 1).hex() == "b029dc2ef2d5ec44b728e1ab61251957e464f77ad93a4b057520b6d19a9be942"
