"""The arrows between packages, read from the source. An exception is listed here by name, or it is an error."""

import ast
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from requester.features import FEATURES
from tests import source_tree
from tests.lanes import FULL
from tests.source_tree import Module, cycles, ours, parse, reachable, within
from worker.features import FEATURES as WORKER_FEATURES

DOCUMENTS: Final = frozenset({"graphdoc"})
MARKET: Final = DOCUMENTS | {"market"}
MAY_IMPORT: Final = {
    "graphdoc": DOCUMENTS,
    "market": MARKET,
    "network": MARKET | {"network"},
    "client": MARKET | {"client", "network"},
    "pages": MARKET | {"pages"},
    "terminal": MARKET | {"terminal"},
    "user_files": MARKET | {"user_files"},
    "contracts": MARKET | {"contracts", "network"},
    "runner": MARKET | {"runner"},
    "compute": MARKET | {"compute", "runner", "network"},
    "archives": MARKET | {"archives", "compute", "network"},
    "migrations": {"migrations", "requester"},
    "field_docs": {"field_docs"},
    "ready_data": MARKET | {"ready_data"},
    "price_guide": MARKET | {"price_guide"},
    "requester": MARKET
    | {
        "requester",
        "migrations",
        "pages",
        "field_docs",
        "ready_data",
        "price_guide",
        "terminal",
        "user_files",
        "runner",
        "contracts",
        "network",
    },
    "worker": MARKET
    | {
        "worker",
        "archives",
        "client",
        "compute",
        "pages",
        "terminal",
        "user_files",
        "runner",
        "contracts",
        "network",
    },
}
"""Package, or folder of `gradmarket` -> the others it imports. Other folders of `gradmarket` may import all of them."""

REQUESTER: Final = {
    **dict.fromkeys(("notifier", "settings", "keys", "blobs", "store", "chain", "live_states", "merge_turns"), 0),
    **dict.fromkeys(
        (
            "folder_lock",
            "dataset",
            "model_runner",
            "logs",
            "meters",
        ),
        0,
    ),
    "folder_lock": 0,
    "context": 1,
    **dict.fromkeys(("moves", "feature"), 2),
    **dict.fromkeys(("stages", "exchange"), 3),
    **dict.fromkeys(("api", "serving"), 5),
    "features": 6,
    **dict.fromkeys(("app", "wiring"), 8),
    **dict.fromkeys(("engine", "cli"), 9),
}

WORKER: Final = {
    **dict.fromkeys(("durable", "journal", "settings", "signals", "wallet", "options"), 0),
    "protocol": 1,
    "money": 2,
    "markets": 3,
    "feature": 4,
    "features": 5,
    "run": 6,
    "cli": 7,
}

MARKET_RULES: Final = "gradmarket.market"
MARKET_LAYERS: Final = (
    ("terms errors printable fields signing messages money release sign_in_message gradient.arrays"),
    "wire",
    "gradient",
    "rules",
    "job job_parts job_fields step stakes manifest",
    "sampling arguments views admissible features",
)
"""Folders and modules of `gradmarket.market`, the lowest first: a module imports of its own layer and of lower ones.

terms: names, numbers and signatures. wire: messages. gradient: arithmetic of answers.
rules: drawing, paying and judging workers; they take values. job, data: a requester's posts, judged by rules.
sampling, arguments, views, admissible: computing, showing and refusing a job.
"""

HEIGHTS: Final = {"requester": REQUESTER, "worker": WORKER}
"""Arrows inside a package go to the same height or down."""
ROOT_HEIGHTS: Final = {"requester.features.many_machines.queue": 9}
"""A composition root that lies in a feature's folder is as high as the others."""

TOOLS: Final = ("auditor", "commands", "public_audit", "sealing", "simulation", "trust")
"""Parts of `gradmarket` that read, plan and check a market from outside: no kernel, so they use features' rules.

Where a feature was deleted, a command that needs it names it (gradmarket.mistakes).
"""

SPEC_FAULTS: Final = ("gradmarket.market.job", "gradmarket.market.features")
"""A job asks its features for its faults, by one tuple."""

STAGES: Final = "requester.stages"
EXCHANGE: Final = "requester.exchange"

REQUESTER_PACKAGE: Final = "requester"
QUERIES: Final = (
    f"{REQUESTER_PACKAGE}.store",
    f"{REQUESTER_PACKAGE}.chain",
    f"{STAGES}.aggregate",
    f"{REQUESTER_PACKAGE}.features",
)
"""Where queries are built. Only the store is meant to; the others have theirs still."""
BUILDS_QUERIES: Final = {"select", "update", "insert", "delete", "exists"}

FEATURE_ROOTS: Final = (
    "gradmarket.market.features",
    "gradmarket.market.job",
    "gradmarket.public_audit.audit_run",
    "requester.features",
    "requester.wiring",
    "requester.features.many_machines.queue",
    "worker.features",
    "worker.run",
    "worker.cli",
)
"""The tuple of the features, and the composition roots, which alone import it."""
NEEDS: Final[defaultdict[str, tuple[str, ...]]] = defaultdict(tuple)
for _feature in (*FEATURES, *WORKER_FEATURES):
    NEEDS[_feature.name] += _feature.needs
"""Of both sides: a feature has one name on each that has a part."""

PLUGINS: Final = (
    "graphdoc.formats",
    "gradmarket.market.gradient.aggregators",
    "gradmarket.market.gradient.codecs",
    "gradmarket.market.gradient.optimizers",
    "gradmarket.runner.architectures",
    "gradmarket.market.arguments",
    "graphdoc.operators",
    "gradmarket.runner.steps",
    "gradmarket.market.rules.pricing",
    "gradmarket.market.rules.replication",
    "gradmarket.market.rules.verifiers",
    "requester.blobs",
    "gradmarket.ready_data",
)
"""A file's name is the plug-in's, and `Settings` is looked up in it by that name: both recur from folder to folder."""

TORCH: Final = (
    "graphdoc",
    "gradmarket.runner",
    "gradmarket.sdk",
    "gradmarket.callbacks.tensorboard",
    "gradmarket.starters",
)
NO_TORCH: Final = (
    "gradmarket",
    "requester.cli",
    "requester.features.many_machines.queue",
    "worker.cli",
    "gradmarket.cli",
    "gradmarket.data.image_folders",
    "gradmarket.data.token_rows",
    "gradmarket.demo.command",
)
HEAVY: Final = {
    "siwe", "abnf", "torch", "sklearn", "boto3", "celery", "kombu", "redis", "numba", "pyarrow", "psycopg", "alembic",
    "opentelemetry.sdk", "sqlalchemy", "fastapi", "web3", "aiohttp", "eth_account", "numpy", "httpx", "uvicorn",
}  # fmt: skip
CLIENT: Final = {"numpy", "httpx"}
SERVER: Final = CLIENT | {"web3", "aiohttp", "eth_account", "uvicorn"}
START_NEEDS: Final = {
    "gradmarket": set(),
    "gradmarket.cli": set(),
    "gradmarket.commands.job_commands": CLIENT,
    "worker.cli": SERVER,
    "requester.cli": SERVER | {"sqlalchemy", "fastapi"},
}
"""A start's imports -> the HEAVY ones that it needs; the others come with their first use."""
SCRIPTS_IMPORT: Final = (
    "gradmarket",
    "gradmarket.sdk",
    "gradmarket.client",
    "gradmarket.callbacks",
    "gradmarket.data",
    "gradmarket.mistakes",
    "gradmarket.endpoint",
    *(f"gradmarket.starters.{name}" for name in ("holders", "images", "table", "text")),
)
"""Imports of researchers, and the scripts that `gradmarket new` writes for them."""
CHILD: Final = "gradmarket.runner.step_child"
PUBLISHER: Final = "gradmarket.runner.publishing"
TRACING: Final = "graphdoc.document.publish"

LATE_IMPORTS: Final[set[tuple[str, str]]] = set()
"""(module, function) at a command line's edge that import something heavy when called."""
BY_NAME: Final = {
    "gradmarket",
    "gradmarket.callbacks",
    "gradmarket.cli",
    "gradmarket.data.image_folders",
    "gradmarket.data.token_rows",
    "gradmarket.market.gradient.compiled",
    "graphdoc.command",
    "graphdoc.plugins",
    "graphdoc.runner.forking",
    "requester.features.many_machines",
    "requester.features.tracing",
    "requester.store.schema",
}
"""Modules that import by a name out of a fixed list."""

PURE_OTHERS: Final = {
    "numba", "numpy", "pyarrow", "pydantic", "eth_account", "eth_keys", "eth_utils", "blake3", "safetensors", "torch",
    "pydantic_core", "coincurve", "cryptography", "decimal", "difflib",
    "abc", "base64", "bisect", "builtins", "collections", "contextlib", "contextvars", "copy", "dataclasses",
    "datetime", "enum", "fnmatch", "fractions", "functools", "hashlib", "hmac", "importlib", "io", "itertools", "json",
    "math", "mmap", "operator", "pkgutil", "re", "statistics", "struct", "types", "typing", "weakref", "zipfile",
    "zlib",
}  # fmt: skip
"""Foreign packages that the market may use: none of them reaches a socket, a database, a clock or chance."""
IMPURE_CALLS: Final = {
    "open",
    "print",
    "input",
    "datetime.now",
    "datetime.utcnow",
    "date.today",
    "np.random.seed",
    "X25519PrivateKey.generate",
    "ChaCha20Poly1305.generate_key",
}

EDGES: Final = (
    *(f"graphdoc.{name}" for name in ("runner", "export", "document.alone", "command", "export_command", "__main__")),
    "gradmarket.runner.machine_limits",
    "gradmarket.runner.market_runner",
    "gradmarket.runner.features.disputes.tracing_runner",
)
"""Parts of graphdoc and the runner that start processes, export a module of this process, or read files."""

FORBIDDEN_MODULES: Final = ("pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "multiprocessing")
FORBIDDEN_CALLS: Final = {
    "eval", "exec", "__import__", "torch.load", "torch.save", "torch.export.load", "torch.jit.load", "torch.hub.load",
}  # fmt: skip
LATE_CALLS: Final = {"importlib.import_module", "import_module"}


@pytest.fixture(scope="module")
def modules() -> dict[str, Module]:
    return source_tree.load_modules()


def package_of(name: str) -> str:
    """The package or, of `gradmarket`, the folder that has a line in MAY_IMPORT; else `gradmarket`."""
    parts = name.removeprefix("gradmarket.").split(".")
    return parts[0] if parts[0] in MAY_IMPORT else "gradmarket"


def against_packages(module: Module) -> Iterator[str]:
    allowed = MAY_IMPORT.get(package_of(module.name))
    for target in ours(module) if allowed is not None else ():
        if package_of(target) not in allowed and target != "gradmarket":
            yield f"{module.name} imports {target}"


def against_heights(module: Module) -> Iterator[str]:
    own = height(module.name)
    for target in ours(module):
        there = height(target)
        same = package_of(module.name) == package_of(target)
        if same and own is not None and there is not None and there > own:
            yield f"{module.name} imports {target} from above"


def against_market_layers(module: Module) -> Iterator[str]:
    own = market_layer(module.name)
    for target in ours(module) if own is not None else ():
        there = market_layer(target)
        if there is not None and there > own and (module.name, target) != SPEC_FAULTS:
            yield f"{module.name} imports {target} of a higher layer"


def market_layer(name: str) -> int | None:
    """The layer of a module of the market: that of the longest name it lies in. None for another module."""
    if not name.startswith(f"{MARKET_RULES}."):
        return None
    path = name.removeprefix(f"{MARKET_RULES}.")
    places = [
        (len(place), layer)
        for layer, members in enumerate(MARKET_LAYERS)
        for place in members.split()
        if within(path, place)
    ]
    return max(places)[1]


def height(name: str) -> int | None:
    parts = name.split(".")
    return ROOT_HEIGHTS.get(name, HEIGHTS.get(parts[0], {}).get(parts[1])) if len(parts) > 1 else None


def against_stages(module: Module) -> Iterator[str]:
    """A row in the next state is the call: stages and exchanges share moves, and import no stage."""
    if within(module.name, STAGES) or within(module.name, EXCHANGE):
        for target in ours(module):
            if within(target, STAGES) and target not in (STAGES, f"{STAGES}.stage"):
                yield f"{module.name} imports the stage {target}"


def against_features(module: Module) -> Iterator[str]:
    """The kernel imports no feature, and a feature no other that it does not declare to need. A tool is neither."""
    if any(within(module.name, f"gradmarket.{tool}") for tool in TOOLS):
        return
    own = feature_of(module.name)
    for target in ours(module):
        other = feature_of(target)
        if other is None or other == own or module.name in FEATURE_ROOTS or other in NEEDS.get(own or "", ()):
            continue
        yield f"{module.name} imports the feature {other}"


def feature_of(name: str) -> str | None:
    """The feature whose folder the module is in; empty for the registry itself."""
    _, _, rest = name.partition(".features")
    if not rest and not name.endswith(".features"):
        return None
    return rest.removeprefix(".").partition(".")[0]


def against_purity(module: Module) -> Iterator[str]:
    if package_of(module.name) in ("market", "graphdoc", "runner") and not any(
        within(module.name, edge) for edge in EDGES
    ):
        yield from (f"{module.name} uses {o}" for o in module.outside if o.partition(".")[0] not in PURE_OTHERS)
        yield from (f"{module.name} calls {name}" for name in calls(module) if name in IMPURE_CALLS)


def against_torch(module: Module) -> Iterator[str]:
    if uses_torch(module) and not any(within(module.name, place) for place in TORCH):
        yield f"{module.name} imports torch"


def against_late_imports(module: Module) -> Iterator[str]:
    for found in module.imports:
        if found.inside and (module.name, found.inside) not in LATE_IMPORTS:
            yield f"{module.name}:{found.line} imports {found.name} inside {found.inside}"
    if module.name not in BY_NAME and LATE_CALLS & set(calls(module)):
        yield f"{module.name} imports by name"


def against_safety(module: Module) -> Iterator[str]:
    for name in module.outside:
        if any(within(name, forbidden) for forbidden in FORBIDDEN_MODULES):
            yield f"{module.name} imports {name}"
    yield from (f"{module.name} calls {name}" for name in calls(module) if name in FORBIDDEN_CALLS)
    for node in ast.walk(module.tree):
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle" and ast.unparse(node.value) != "False":
            yield f"{module.name} lets numpy unpickle"
        if isinstance(node, ast.Assert):
            yield f"{module.name}:{node.lineno} validates with an assert"


def against_hidden_queries(module: Module) -> Iterator[str]:
    """Queries are built in store, and only there a unit of work's session is used."""
    if not within(module.name, REQUESTER_PACKAGE) or any(within(module.name, place) for place in QUERIES):
        return
    yield from (f"{module.name} builds a query by {name}" for name in calls(module) if name in BUILDS_QUERIES)
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("work.session", "reader.session"):
            yield f"{module.name}:{node.lineno} uses {ast.unparse(node)}"


def calls(module: Module) -> Iterator[str]:
    """Yields the dotted names of calls, such as `torch.load`."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            yield ast.unparse(node.func)


def uses_torch(module: Module) -> bool:
    return any(within(name, "torch") for name in module.outside)


RULES: Final = (
    against_packages, against_heights, against_market_layers, against_stages, against_features, against_purity,
    against_torch, against_late_imports, against_safety, against_hidden_queries,
)  # fmt: skip


@FULL
@pytest.mark.parametrize("rule", RULES)
def test_every_module_keeps_the_rule(rule: object, modules: dict[str, Module]) -> None:
    assert callable(rule)
    assert [found for module in modules.values() for found in rule(module)] == []


def test_no_two_public_classes_have_one_name(modules: dict[str, Module]) -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for name, module in modules.items():
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name] += [] if plugin(name) and node.name == "Settings" else [name]
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_no_module_name_recurs_within_a_package_of(modules: dict[str, Module]) -> None:
    own = [
        name
        for name in modules
        if not plugin(name)
        and not name.endswith(".features")
        and name.partition(".")[2].count(".") + (package_of(name) in HEIGHTS or package_of(name) == "contracts") > 0
    ]
    stems = Counter((package_of(name), name.rpartition(".")[2]) for name in own)
    assert [stem for stem, count in stems.items() if count > 1] == []


def plugin(name: str) -> bool:
    return any(within(name, folder) for folder in PLUGINS)


@pytest.mark.parametrize(
    "path", sorted((source_tree.ROOT / "tests" / "graphdoc").glob("*.py")), ids=lambda path: path.stem
)
def test_the_tests_of_documents_need_no_market(path: Path, modules: dict[str, Module]) -> None:
    own = parse(f"tests.graphdoc.{path.stem}", path.read_text(), modules)
    assert {name for name in ours(own) if not within(name, "graphdoc")} == set()


def test_no_import_cycles(modules: dict[str, Module]) -> None:
    assert cycles(modules) == []


@pytest.mark.parametrize("entry", NO_TORCH)
def test_torch_stays_out_of_the_main_processes(entry: str, modules: dict[str, Module]) -> None:
    assert [name for name in reachable(modules, entry) if uses_torch(modules[name])] == []


@FULL
@pytest.mark.parametrize("entry", START_NEEDS)
def test_a_start_imports_nothing_that_it_does_not_need(entry: str) -> None:
    program = f"import sys, {entry}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert HEAVY & set(done.stdout.split()) == START_NEEDS[entry]


def test_a_start_builds_no_validator_of_the_markets_messages() -> None:
    program = (
        "from gradmarket.market import fields; import gradmarket.client, sys\n"
        "kinds = list(fields.DeferredModel.__subclasses__())\n"
        "for kind in kinds: kinds += kind.__subclasses__()\n"
        "assert len(kinds) > 100\n"
        "print(*(kind.__qualname__ for kind in kinds if kind.__pydantic_complete__))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert len(done.stdout.split()) <= 10, done.stdout


def test_torch_is_in_the_runners_child(modules: dict[str, Module]) -> None:
    assert any(uses_torch(modules[name]) for name in reachable(modules, CHILD))


def test_a_child_that_only_computes_imports_nothing_that_traces_models(modules: dict[str, Module]) -> None:
    assert TRACING in reachable(modules, PUBLISHER)
    assert TRACING not in reachable(modules, CHILD)


@pytest.mark.parametrize("tall", HEIGHTS)
def test_every_folder_of_a_package_has_its_height(tall: str, modules: dict[str, Module]) -> None:
    folders = {name.split(".")[1] for name in modules if name.startswith(f"{tall}.")}
    assert folders == HEIGHTS[tall].keys()


def test_every_module_of_the_market_has_its_layer(modules: dict[str, Module]) -> None:
    paths = {name.removeprefix(f"{MARKET_RULES}.") for name in modules if name.startswith(f"{MARKET_RULES}.")}
    places = {place for members in MARKET_LAYERS for place in members.split()}
    assert {path for path in paths if not any(within(path, place) for place in places)} == set()
    assert places <= paths


BROKEN: Final = {
    "package": ("gradmarket.market.rules.x", "from contracts import calls", against_packages),
    "requester from worker": ("worker.x", "from requester import notifier", against_packages),
    "worker from requester": ("requester.api.x", "import worker.run", against_packages),
    "users' from runner": ("gradmarket.runner.x", "from gradmarket.client import Market", against_packages),
    "worker from compute": ("gradmarket.compute.x", "from worker import wallet", against_packages),
    "height in the worker": ("worker.protocol.x", "import worker.features.stakes.stake", against_heights),
    "height": ("requester.stages.x", "from requester import wiring", against_heights),
    "wire from terms": (
        "gradmarket.market.messages",
        "from gradmarket.market.wire import poll",
        against_market_layers,
    ),
    "rules from wire": (
        "gradmarket.market.wire.x",
        "from gradmarket.market.rules.faults import shared",
        against_market_layers,
    ),
    "job from rules": ("gradmarket.market.rules.x", "from gradmarket.market.job import JobSpec", against_market_layers),
    "sampling from job": ("gradmarket.market.job", "import gradmarket.market.sampling", against_market_layers),
    "rules from gradient": (
        "gradmarket.market.gradient.x",
        "from gradmarket.market.rules import row_weights",
        against_market_layers,
    ),
    "stage to stage": ("requester.stages.x", "from requester.stages import plan", against_stages),
    "exchange to stage": ("requester.exchange.x", "import requester.stages.plan", against_stages),
    "kernel to feature": ("requester.stages.x", "from requester.features.drift import lean_rows", against_features),
    "kernel to features": ("requester.cli", "from requester.features import FEATURES", against_features),
    "feature to feature": (
        "requester.features.x",
        "from requester.features.drift import lean_rows",
        against_features,
    ),
    "socket": ("gradmarket.market.x", "import socket", against_purity),
    "clock": ("gradmarket.market.x", "from time import time", against_purity),
    "file": ("gradmarket.market.x", "open('a')", against_purity),
    "now": ("gradmarket.market.x", "from datetime import datetime\ndatetime.now()", against_purity),
    "torch": ("requester.x", "from torch import nn", against_torch),
    "torch in rules": ("gradmarket.market.rules.x", "import torch.nn", against_torch),
    "late": ("worker.x", "def f():\n    import json", against_late_imports),
    "later": (
        "worker.x",
        "class A:\n    def f(self):\n        if 1:\n            import json",
        against_late_imports,
    ),
    "by name": ("worker.x", "import importlib\nimportlib.import_module('a')", against_late_imports),
    "pickle": ("worker.x", "from pickle import loads", against_safety),
    "pool": ("worker.x", "import multiprocessing.pool", against_safety),
    "eval": ("worker.x", "eval('1')", against_safety),
    "torch.load": ("gradmarket.runner.x", "import torch\ntorch.load('a')", against_safety),
    "numpy": ("worker.x", "import numpy\nnumpy.load('a', allow_pickle=True)", against_safety),
    "assert": ("worker.x", "assert 1", against_safety),
    "query": ("requester.moves.x", "from sqlalchemy import select\nselect(1)", against_hidden_queries),
    "session": ("requester.api.x", "def f(work):\n    work.session.flush()", against_hidden_queries),
}


@pytest.mark.parametrize("case", BROKEN)
def test_each_rule_sees_what_it_forbids(case: str, modules: dict[str, Module]) -> None:
    name, text, rule = BROKEN[case]
    assert len(list(rule(parse(name, text, modules)))) == 1


def test_cycles_are_found() -> None:
    texts = {
        "gradmarket.a": "from gradmarket import b",
        "gradmarket.b": "import gradmarket.c",
        "gradmarket.c": "from gradmarket.a import x",
    }
    looped = {name: parse(name, text, texts) for name, text in texts.items()}
    assert cycles(looped) == [set(texts)]


@pytest.mark.parametrize("entry", SCRIPTS_IMPORT)
def test_no_script_of_a_researcher_reaches_a_package_of_a_general_name(entry: str, modules: dict[str, Module]) -> None:
    """A researcher's own worker.py beside the script would stand before ours."""
    general = {"contracts", "migrations", "requester", "worker"}
    assert {name for name in reachable(modules, entry) if name.partition(".")[0] in general} == set()
