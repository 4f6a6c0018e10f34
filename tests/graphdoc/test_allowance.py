"""A request's limits are its own: memory beyond them is refused, processor time beyond them ends the child."""

import subprocess
import sys
import textwrap

from graphdoc.runner import allowance
from tests.lanes import FULL


def ended(code: str) -> tuple[int, str]:
    """Runs this code in a process with `allowed`; returns its exit code and output."""
    whole = "from graphdoc.runner.allowance import limit_request\n" + textwrap.dedent(code)
    answer = subprocess.run([sys.executable, "-c", whole], capture_output=True, text=True, check=False)
    return answer.returncode, answer.stdout.strip()


def test_memory_beyond_it_is_refused_and_there_again_afterwards() -> None:
    code = f"""
        size = {allowance.SPARE} + 2**26
        with limit_request(60.0, memory=2**25):
            try:
                taken = bytearray(size)
            except MemoryError:
                print("refused")
        taken = bytearray(size)
        print("there")
    """
    assert ended(code) == (0, "refused\nthere")


def test_processor_time_beyond_it_ends_the_process() -> None:
    code = """
        with limit_request(0.5):
            while True:
                pass
    """
    assert ended(code) == (allowance.OVERDRAWN, "")


@FULL
def test_waiting_uses_no_processor_time() -> None:
    code = """
        import select
        with limit_request(0.1):
            select.select([], [], [], 2.5)  # more seconds than it may compute
        print("there")
    """
    assert ended(code) == (0, "there")


def test_a_task_may_take_the_time_of_its_operations() -> None:
    assert allowance.compute_allowed_seconds(0, 1, 1, 1) >= allowance.FIRST_S
    more = allowance.compute_allowed_seconds(10**12, 100, 4, 2) - allowance.compute_allowed_seconds(0, 0, 1, 2)
    assert more == 2 * (10**12 / allowance.SLOWEST + 400 * allowance.CALL_S)
