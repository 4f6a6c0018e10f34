"""A wrong gradient against two honest ones: outvoted, unpaid, and the model as if nobody had tried."""

from functools import partial
from typing import Final

import numpy as np

from tests.attacks.registry import attack
from tests.attacks.scene import Scene
from tests.kit.behaviour import HONEST, NOISE, TRIPLED, Behaviour, changed

OUTVOTED = "cheat rejected 0; honest payable 10; finished; books balanced; same model"


def outvoted(scene: Scene, cheat: Behaviour, rounds: int = 1) -> str:
    """The cheat beside two honest workers, and the model beside that of honest ones alone."""
    job = scene.post(rounds=rounds)
    liar, *honest = job.team(cheat, HONEST, HONEST)
    job.play(liar, *honest)
    same = job.fetch_view()["parameters"] == scene.clean(rounds)
    return f"{job.seen(cheat=liar, honest=honest)}; {'same' if same else 'another'} model"


CHEATS: Final = {
    "noise is outvoted": ("random gradient", NOISE),
    "nothing but zeros": ("zero gradient", changed(np.zeros_like)),
    "three times the gradient": ("scaled gradient", TRIPLED),
    "uphill instead of down": ("sign-flipped gradient", changed(np.negative)),
    "seven rows of eight": ("fewer-samples gradient", Behaviour(takes="fewer samples")),
    "targets with another sign": ("label-flipped gradient", Behaviour(takes="flipped labels")),
    "one number by one bit": (
        "one small tensor tampered",
        changed(lambda array: np.nextafter(array, np.float32(np.inf)), "b"),
    ),
    "a lone not a number": ("NaN/Inf", changed(lambda array: np.full_like(array, np.nan), "b")),
}
for name, (line, cheat) in CHEATS.items():
    attack(line, OUTVOTED, name=name)(partial(outvoted, cheat=cheat))


@attack("stale-weights gradient", "cheat payable+rejected 10; honest payable 20; finished; books balanced; same model")
def last_round_s_parameters(scene: Scene) -> str:
    return outvoted(scene, Behaviour(takes="stale weights"), rounds=2)


@attack("NaN/Inf", "colluders diverged 10; paused; books balanced; same model")
def all_three_send_infinity(scene: Scene) -> str:
    """It is agreed on, so it is paid; it is not used, and the job pauses."""
    job = scene.post()
    colluders = job.team(*[changed(lambda array: np.full_like(array, np.inf), "w")] * 3)
    job.play(*colluders)
    untouched = job.fetch_view()["parameters"] in (None, job.fetch_view()["publication"]["parameters"])
    return f"{job.seen(colluders=colluders)}; {'same' if untouched else 'another'} model"
