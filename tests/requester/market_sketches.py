"""The sketch that a simulated worker reveals, signed as a real one signs it."""

from typing import Any

from eth_keys.datatypes import PrivateKey

from gradmarket.market import signing
from gradmarket.market.gradient.codecs import codec
from gradmarket.market.gradient.payload_layout import Layout
from gradmarket.market.rules import secrets, sketch_packing
from gradmarket.market.signing import Domain
from gradmarket.market.terms import Hash
from gradmarket.market.wire import OfferFields, SketchRequest, WaveOpened


def seed_of(wave: WaveOpened) -> Hash:
    return secrets.wave_seed(wave.secret, secrets.digest_of(wave.commitments))


def sketched(
    domain: Domain,
    key: PrivateKey,
    layout: Layout,
    payload: bytes,
    offer: OfferFields,
    wave: WaveOpened,
    **changes: Any,
) -> SketchRequest:
    """Of the payload under the wave's seed; `changes` are what somebody else says instead, under his signature."""
    made = sketch_packing.of_payload(layout, payload, codec("fp32"), offer.seed, seed_of(wave))
    said = SketchRequest(**({"numbers": sketch_packing.tell(made), "signature": bytes(65)} | changes))
    if "signature" in changes:
        return said
    named = said.struct(signing.digest(domain, offer.struct()), signing.address_of(key), seed_of(wave))
    return said.model_copy(update={"signature": signing.sign(key, signing.digest(domain, named))})
