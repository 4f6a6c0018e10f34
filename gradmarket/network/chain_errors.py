"""Errors between this machine and a chain.

MarketError
└── ChainError
    ├── ChainUnreachable    no answer; the outcome is unknown
    │   └── NodeBusy        it answers that it cannot answer now (429, 502)
    ├── NodeRefused         the node refused (no money for gas, fee too low)
    │   └── GasTooDear      gas costs more than the owner pays
    ├── ContractRefused     the contract reverted; has the name of its error
    ├── ForeignChain        not the expected deployment; names what differs
    └── LocalChainFailed    the local Anvil failed
"""

from collections.abc import Sequence

from gradmarket.market.errors import MarketError


class ChainError(MarketError):
    """The chain."""


class ChainUnreachable(ChainError):
    """The chain's node does not answer."""


class NodeBusy(ChainUnreachable):
    """The chain's node cannot answer now."""


class NodeRefused(ChainError):
    """The chain's node refused."""


class GasTooDear(NodeRefused):
    """Gas costs more than the ceiling that the owner set; nothing is sent until it is cheaper."""


class ContractRefused(ChainError):
    """The contract refused."""

    def __init__(self, name: str, arguments: Sequence[object] = ()) -> None:
        super().__init__(f"{name}({', '.join(map(str, arguments))})")
        self.name = name
        self.arguments = tuple(arguments)


class ForeignChain(ChainError):
    """This is not the chain, contract or instance that was expected."""

    def __init__(self, field: str, expected: object, actual: object) -> None:
        super().__init__(f"{field} is {actual} instead of {expected}")
        self.field = field


class LocalChainFailed(ChainError):
    """The local Anvil failed."""
