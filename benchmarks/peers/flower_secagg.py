"""One client of Flower's SecAgg+, by itself: the CPU seconds of its four steps, with neighbours that are all there.

The steps are Flower's own functions, called as its mod calls them; the neighbours' messages are made beforehand.
"""

import json
import os
import sys
import time
from importlib import import_module

import numpy as np
from flwr.common import ndarrays_to_parameters
from flwr.common.secure_aggregation.crypto.shamir import create_shares
from flwr.common.secure_aggregation.crypto.symmetric_encryption import encrypt, generate_shared_key
from flwr.common.secure_aggregation.secaggplus_constants import Key
from flwr.common.secure_aggregation.secaggplus_utils import share_keys_plaintext_concat
from flwr.supercore.primitives.asymmetric import (
    bytes_to_public_key,
    generate_key_pairs,
    private_key_to_bytes,
    public_key_to_bytes,
)

mod = import_module("flwr.client.mod.secure_aggregation.secaggplus_mod")  # a function of its package has that name
SETTINGS = {
    Key.CLIPPING_RANGE: 8.0,
    Key.TARGET_RANGE: 4194304,
    Key.MOD_RANGE: 4294967296,
    Key.MAX_WEIGHT: 1000.0,
}
"""Defaults of SecAggPlusWorkflow."""


def main(elements: int, holders: int, shares: int, threshold: int, runs: int) -> None:
    vector = np.random.default_rng(0).standard_normal(elements, np.float32)
    others = {number: (generate_key_pairs(), generate_key_pairs()) for number in range(1, shares)}
    public = {n: (public_key_to_bytes(one[1]), public_key_to_bytes(two[1])) for n, (one, two) in others.items()}
    share = create_shares(os.urandom(32), threshold, shares)[0]
    key_share = create_shares(private_key_to_bytes(others[1][0][0]), threshold, shares)[0]
    numbers = {Key.SAMPLE_NUMBER: holders, Key.SHARE_NUMBER: shares, Key.THRESHOLD: threshold}
    taken = []
    for _ in range(runs):
        state = mod.SecAggPlusState()
        start = time.process_time()
        reply = mod._setup(state, {**SETTINGS, **numbers})
        keys = {"0": (reply[Key.PUBLIC_KEY_1], reply[Key.PUBLIC_KEY_2]), **{str(n): pair for n, pair in public.items()}}
        mod._share_keys(state, keys)
        spent = time.process_time() - start
        own = bytes_to_public_key(reply[Key.PUBLIC_KEY_2])
        sealed = [
            encrypt(generate_shared_key(two[0], own), share_keys_plaintext_concat(number, 0, share, key_share))
            for number, (_, two) in others.items()
        ]
        start = time.process_time()
        boxes = {Key.CIPHERTEXT_LIST: sealed, Key.SOURCE_LIST: list(others)}
        mod._collect_masked_vectors(state, boxes, 1, ndarrays_to_parameters([vector]))
        mod._unmask(state, {Key.ACTIVE_NODE_ID_LIST: [0, *others], Key.DEAD_NODE_ID_LIST: []})
        taken.append(spent + time.process_time() - start)
    print(json.dumps(taken))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
