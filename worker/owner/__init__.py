"""What a worker's owner watches: earnings, work and standing, on a terminal or as a page of this machine.

It reads the worker's folder, the chain and the market's public routes. It needs no key and changes nothing.
"""
