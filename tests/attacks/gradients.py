"""A wrong gradient against two honest ones: outvoted, unpaid, and the model as if nobody had tried."""

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
    same = job.told()["parameters"] == scene.clean(rounds)
    return f"{job.seen(cheat=liar, honest=honest)}; {'same' if same else 'another'} model"


@attack("random gradient", OUTVOTED, share=True)
def noise_is_outvoted(scene: Scene) -> str:
    return outvoted(scene, NOISE)


@attack("zero gradient", OUTVOTED)
def nothing_but_zeros(scene: Scene) -> str:
    return outvoted(scene, changed(np.zeros_like))


@attack("scaled gradient", OUTVOTED)
def three_times_the_gradient(scene: Scene) -> str:
    return outvoted(scene, TRIPLED)


@attack("sign-flipped gradient", OUTVOTED)
def uphill_instead_of_down(scene: Scene) -> str:
    return outvoted(scene, changed(np.negative))


@attack("fewer-samples gradient", OUTVOTED)
def seven_rows_of_eight(scene: Scene) -> str:
    return outvoted(scene, Behaviour(takes="fewer samples"))


@attack("label-flipped gradient", OUTVOTED)
def targets_with_another_sign(scene: Scene) -> str:
    return outvoted(scene, Behaviour(takes="flipped labels"))


@attack("stale-weights gradient", "cheat payable+rejected 10; honest payable 20; finished; books balanced; same model")
def last_round_s_parameters(scene: Scene) -> str:
    return outvoted(scene, Behaviour(takes="stale weights"), rounds=2)


@attack("one small tensor tampered", OUTVOTED)
def one_number_by_one_bit(scene: Scene) -> str:
    return outvoted(scene, changed(lambda array: np.nextafter(array, np.float32(np.inf)), "b"))


@attack("NaN/Inf", OUTVOTED)
def a_lone_not_a_number(scene: Scene) -> str:
    return outvoted(scene, changed(lambda array: np.full_like(array, np.nan), "b"))


@attack("NaN/Inf", "colluders diverged 10; paused; books balanced; same model")
def all_three_send_infinity(scene: Scene) -> str:
    """It is agreed on, so it is paid; it is not used, and the job pauses."""
    job = scene.post()
    colluders = job.team(*[changed(lambda array: np.full_like(array, np.inf), "w")] * 3)
    job.play(*colluders)
    untouched = job.told()["parameters"] in (None, job.told()["publication"]["parameters"])
    return f"{job.seen(colluders=colluders)}; {'same' if untouched else 'another'} model"
