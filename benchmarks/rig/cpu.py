"""CPU seconds of other processes, as the kernel counts them: in ticks."""

import psutil


def own_cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def children_cpu_s(process: psutil.Process) -> float:
    """Of those that still run, and of theirs."""
    return sum(map(own_cpu_s, process.children(recursive=True)))


def tree_cpu_s(process: psutil.Process) -> float:
    """CPU seconds of the process and all its children, ended ones included."""
    ended = process.cpu_times()
    return own_cpu_s(process) + float(ended.children_user + ended.children_system) + children_cpu_s(process)
