"""The services of docker-compose.yml as a separate project: started, controlled, and removed completely."""

import secrets
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from containers.engine import ContainerEngine, ran
from contracts import deployment
from contracts.ledger import Ledger
from contracts.rpc import connect_to_node
from gradmarket.client import RequesterClient
from gradmarket.client.client_errors import ServiceProblem, ServiceUnreachable
from gradmarket.demo.children import DemoFailed

UP_S: Final = 600.0
READY_S: Final = 300.0
LOOK_EVERY_S: Final = 0.5
LABEL: Final = "gradmarket.demo"
PORTS: Final = ("GRADMARKET_PORT", "GRADMARKET_TLS_PORT", "GRADMARKET_CHAIN_PORT")
INSIDE: Final = "http://requester:8700"
"""The market's address for workers in the project's network: the proxy in front of both API processes."""

CHAIN_INSIDE: Final = "http://chain:8545"
"""The local chain's node for them: a worker believes a market's own node on its own machine alone."""


@dataclass
class ComposeProject:
    """`source` holds the compose file; `folder` holds the project's own secrets and output."""

    engine: ContainerEngine
    source: Path
    folder: Path
    name: str = field(default_factory=lambda: f"gradmarket-demo-{secrets.token_hex(3)}")
    ports: dict[str, int] = field(default_factory=lambda: dict(zip(PORTS, _free_ports(len(PORTS)), strict=True)))

    @property
    def network(self) -> str:
        return f"{self.name}_market"

    def market(self) -> RequesterClient:
        token = (self.folder / "secrets" / "gradmarket_token").read_text().strip()
        return RequesterClient(f"http://127.0.0.1:{self.ports['GRADMARKET_PORT']}", token)

    def up(self) -> None:
        ran([str(self.source / "docker" / "secrets.sh"), str(self.folder / "secrets")])
        self.compose("up", "--detach", "--no-build", seconds=UP_S)

    def ready(self) -> None:
        """Waits until an API process is ready behind the proxy. Raises DemoFailed if none is in time."""
        until = time.monotonic() + READY_S
        with self.market() as market:
            while trouble := _trouble(market):
                if time.monotonic() > until:
                    raise DemoFailed(f"{market.url} is not ready: {trouble}\n{self.last_words()}")
                time.sleep(LOOK_EVERY_S)

    def compose(self, *arguments: str, seconds: float = UP_S) -> str:
        command = [*self.engine.compose, "--project-name", self.name, "--file", str(self.source / "docker-compose.yml")]
        settings = {name: str(port) for name, port in self.ports.items()}
        settings |= {"GRADMARKET_SECRETS_FOLDER": str(self.folder / "secrets"), "GRADMARKET_SETTLE_EVERY_S": "2"}
        return ran([*command, "--profile", "local-chain", *arguments], seconds, settings, self.source)

    def container(self, service: str) -> str:
        """Returns the id of a service's container."""
        for label in ("com.docker.compose", "io.podman.compose"):
            for key in (f"label={label}.service={service}", f"label=com.docker.compose.service={service}"):
                ids = self.engine.ask(
                    "ps", "--all", "--quiet", "--filter", f"label={label}.project={self.name}", "--filter", key
                )
                if ids.strip():
                    return ids.split()[0]
        raise DemoFailed(f"{service} has no container")

    def restart(self, service: str) -> None:
        self.engine("restart", "--time", "20", self.container(service))

    def ledger(self) -> Ledger:
        """Returns the contract's state, read from the chain and not through the service."""
        book = self.folder / "deployment.json"
        book.write_text(self.engine("exec", self.container("requester-1"), "cat", "/data/deployment.json"))
        web3 = connect_to_node(f"http://127.0.0.1:{self.ports['GRADMARKET_CHAIN_PORT']}")
        return Ledger(web3, deployment.load_deployment(book))

    def down(self) -> None:
        """Removes every container, network and volume of the project, and nothing else."""
        worker_containers = self.engine.ask("ps", "--all", "--quiet", "--filter", f"label={LABEL}={self.name}").split()
        if worker_containers:
            self.engine.ask("rm", "--force", "--volumes", *worker_containers)
        self.compose("down", "--volumes", "--timeout", "20")

    def last_words(self) -> str:
        """Returns the last log lines of every container of the project."""
        listed = self.engine.ask("ps", "--all", "--filter", f"name={self.name}", "--format", "{{.Names}}: {{.Status}}")
        return "\n".join(f"{line}\n{self._tail(line.partition(':')[0])}" for line in listed.splitlines())

    def _tail(self, container: str) -> str:
        done = subprocess.run(
            [self.engine.program, "logs", "--tail", "8", container], capture_output=True, text=True, check=False
        )
        return (done.stdout + done.stderr)[-1500:]


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def _trouble(market: RequesterClient) -> str:
    try:
        market.ready()
    except (ServiceUnreachable, ServiceProblem) as error:
        return str(error)
    return ""


@contextmanager
def opened(engine: ContainerEngine, source: Path, folder: Path) -> Iterator[tuple[ComposeProject, ExitStack]]:
    """Starts a project and yields it; removes it completely at the end, also after errors."""
    compose_project = ComposeProject(engine, source, folder)
    with ExitStack() as ending:
        ending.callback(compose_project.down)
        compose_project.up()
        compose_project.ready()
        yield compose_project, ending
