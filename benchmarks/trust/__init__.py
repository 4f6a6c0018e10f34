"""Hostile workers against the merge and the vote: the setting of Gorbunov et al. 2022, "Secure Distributed Training at
Scale" (BTARD), with this project's own functions in one process.
"""
