"""Losses and similarities."""

from typing import Final

from graphdoc.operators.costs import count_transcendental
from graphdoc.operators.entry import Entries, aten

ENTRIES: Final[Entries] = {
    "cross_entropy_loss.default": aten("tensor tensor tensor? int int float -> tensor", count_transcendental),
    "nll_loss.default": aten("tensor tensor tensor? int int -> tensor", count_transcendental),
    "nll_loss_nd.default": aten("tensor tensor tensor? int int -> tensor", count_transcendental),
    "mse_loss.default": aten("tensor tensor int -> tensor", count_transcendental),
    "l1_loss.default": aten("tensor tensor int -> tensor", count_transcendental),
    "smooth_l1_loss.default": aten("tensor tensor int float -> tensor", count_transcendental),
    "huber_loss.default": aten("tensor tensor int float -> tensor", count_transcendental),
    "kl_div.default": aten("tensor tensor int bool -> tensor", count_transcendental),
    "binary_cross_entropy.default": aten("tensor tensor tensor? int -> tensor", count_transcendental),
    "binary_cross_entropy_with_logits.default": aten(
        "tensor tensor tensor? tensor? int -> tensor", count_transcendental
    ),
    "soft_margin_loss.default": aten("tensor tensor int -> tensor", count_transcendental),
    "margin_ranking_loss.default": aten("tensor tensor tensor float int -> tensor", count_transcendental),
    "hinge_embedding_loss.default": aten("tensor tensor float int -> tensor", count_transcendental),
    "cosine_embedding_loss.default": aten("tensor tensor tensor float int -> tensor", count_transcendental),
    "triplet_margin_loss.default": aten(
        "tensor tensor tensor float float float bool int -> tensor", count_transcendental
    ),
    "poisson_nll_loss.default": aten("tensor tensor bool bool float int -> tensor", count_transcendental),
    "cosine_similarity.default": aten("tensor tensor int float -> tensor", count_transcendental),
    "pairwise_distance.default": aten("tensor tensor float float bool -> tensor", count_transcendental),
}
