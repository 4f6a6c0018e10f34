"""Losses and similarities."""

from typing import Final

from graphdoc.operators.costs import transcendental
from graphdoc.operators.entry import Entries, aten

ENTRIES: Final[Entries] = {
    "cross_entropy_loss.default": aten("tensor tensor tensor? int int float -> tensor", transcendental),
    "nll_loss.default": aten("tensor tensor tensor? int int -> tensor", transcendental),
    "nll_loss_nd.default": aten("tensor tensor tensor? int int -> tensor", transcendental),
    "mse_loss.default": aten("tensor tensor int -> tensor", transcendental),
    "l1_loss.default": aten("tensor tensor int -> tensor", transcendental),
    "smooth_l1_loss.default": aten("tensor tensor int float -> tensor", transcendental),
    "huber_loss.default": aten("tensor tensor int float -> tensor", transcendental),
    "kl_div.default": aten("tensor tensor int bool -> tensor", transcendental),
    "binary_cross_entropy.default": aten("tensor tensor tensor? int -> tensor", transcendental),
    "binary_cross_entropy_with_logits.default": aten("tensor tensor tensor? tensor? int -> tensor", transcendental),
    "soft_margin_loss.default": aten("tensor tensor int -> tensor", transcendental),
    "margin_ranking_loss.default": aten("tensor tensor tensor float int -> tensor", transcendental),
    "hinge_embedding_loss.default": aten("tensor tensor float int -> tensor", transcendental),
    "cosine_embedding_loss.default": aten("tensor tensor tensor float int -> tensor", transcendental),
    "triplet_margin_loss.default": aten("tensor tensor tensor float float float bool int -> tensor", transcendental),
    "poisson_nll_loss.default": aten("tensor tensor bool bool float int -> tensor", transcendental),
    "cosine_similarity.default": aten("tensor tensor int float -> tensor", transcendental),
    "pairwise_distance.default": aten("tensor tensor float float bool -> tensor", transcendental),
}
