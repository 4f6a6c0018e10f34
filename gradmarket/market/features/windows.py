"""Cuts a task of local steps into windows, so that an audit repeats two of them and not the whole task.

A task of H inner steps has W = ceil(H / J) windows of J steps; the last one may be shorter. The answer commits to the
state at the start of every window but the first: W - 1 *leaves*. An audit draws one of the first W - 1 windows:

    drawn = floor(H("window", link, offer, root) * (W - 1) / 2^256)

It gets the states at the start of the drawn window and of the last one from the worker, by their leaves. It repeats
both, and compares the next leaf and the answer. The root covers leaves and answer, and the link (rules.secrets) is
secret until the task is accepted. So a worker has committed to every state before anybody knows which one the audit
needs.

This stops a worker that leaves out inner steps: an answer with m wrong windows among the first W - 1 is found with
probability m / (W - 1), and one with a wrong last window for certain. It does not stop a worker that spoils a task in a
single window as well as an audit of the whole task does; a smaller W does.
"""

from gradmarket.market.fields import DigestField
from gradmarket.market.job_fields import JobFields
from gradmarket.market.rules import verifiers
from gradmarket.market.step import cut_windows
from gradmarket.market.terms import Hash, domain_hash
from gradmarket.market.wire import JobField, ReplicaField, Wire


def draw_audited_window(link: Hash, offer: Hash, root: Hash, leaves: int) -> int:
    """Returns the window that an audit repeats beside the last one, counted from 0."""
    return int.from_bytes(domain_hash("window", link, offer, root), "big") * leaves >> 256


def list_needed_windows(window: int, leaves: int) -> tuple[int, ...]:
    """Returns the windows whose first states an audit needs: neither the first one's, nor one that it computes."""
    return tuple(number for number in (window, leaves) if number not in (0, window + 1))


def compute_repeated_share(steps: int, window: int) -> float:
    """Returns the part of a task's inner steps that an audit repeats: the drawn window and the last one."""
    return (window + len(cut_windows(steps, window)[-1])) / steps


def compute_detection_rate(wrong: int, leaves: int) -> float:
    """Returns the probability that an audit finds an answer with `wrong` wrong windows, the last one not among them."""
    return min(1.0, wrong / leaves)


class StateRequest(Wire):
    """An audit repeats a window of this replica's task: its worker should bring the state of that digest.

    That is the first state of window `number`; `seconds` are left.
    """

    replica: ReplicaField
    job: JobField
    number: int
    digest: DigestField
    seconds: float


class StatesAsked(Wire):
    states: tuple[StateRequest, ...] = ()


class StateReceipt(Wire):
    digest: DigestField


def find_windows_fault(spec: JobFields) -> str:
    """Returns why audits of this job cannot repeat two windows of a task, the field first; empty where they can."""
    if not spec.step.leaves:
        return ""
    if not spec.audited:
        return 'step.window: only audits use windows: set audit, such as {"probability": 0.1}, or leave it out'
    if spec.verifier.name != verifiers.DEFAULT:
        return f"step.window: a state is compared by bits: set verifier to {verifiers.DEFAULT}, or leave it out"
    if spec.replication.gain is not None:
        name = spec.replication.name
        return f"step.window: {name} counts audits of whole tasks: set another replication, or leave it out"
    return ""
