"""A service that logs everything, under honest and broken requests: no token, key or signature is in its log.

Nor is any among the arguments that every process of the machine can read.
"""

import sqlite3
from contextlib import closing
from pathlib import Path

from contracts import keystore
from contracts.local import LocalChain
from tests.lanes import FULL
from tests.ops.served import served
from tests.ops.signed_in import sign_in
from tests.patience import PATIENCE_S, wait_until

JOB = {
    "name": "told",
    "model": {"architecture": "mlp", "arguments": {"hidden": [8]}},
    "data": {"ready": "digits"},
    "step": {"rows": 16},
    "optimizer": {"lr": 0.1},
    "rounds": 1,
    "replication": {"name": "fixed"},
    "price": "1000000000",
}
POLL = {"determinism_class": "cpu", "capacity": 1, "wait_s": 0}
PASSPHRASE = "a passphrase of just this one test"


def _arguments(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:  # it has ended
        return ""


@FULL
def test_a_log_of_everything_has_no_secret(own_anvil: LocalChain, tmp_path: Path) -> None:
    with served(tmp_path / "data", own_anvil.url, {"GRADMARKET_PASSPHRASE": PASSPHRASE}) as service:
        session, signature = sign_in(service.url)
        unused, _ = sign_in(service.url)
        job = (
            service.http(service.token).post("/v1/jobs", json=JOB, headers={"Idempotency-Key": "the-key"}).json()["id"]
        )
        service.http(session).post("/v1/work/poll", json=POLL)
        service.http(session + "x").post("/v1/work/poll", json=POLL)
        service.http(session).post("/v1/jobs", json=JOB)
        wait_until(lambda: service.list_events("published", job=job))
        with closing(sqlite3.connect(service.data / "gradmarket.sqlite", timeout=PATIENCE_S)) as database:
            database.execute("DROP TABLE tokens")  # errors of the database show their queries
        assert service.http(unused).post("/v1/work/poll", json=POLL).status_code == 503
        arguments = [_arguments(path) for path in Path("/proc").glob("[0-9]*/cmdline")]
        assert any(str(service.data) in line for line in arguments)
        assert service.end() == 0
        written = service.log.read_text() + "".join(arguments)
        secrets = [service.token, PASSPHRASE]
        for name in ("signer", "sender"):
            assert not (service.data / "keys" / name).exists()
            stored = (service.data / "keys" / f"{name}.json").read_text()
            secrets.append(keystore.decrypt_key(stored, PASSPHRASE, "keystore").to_bytes().hex())
    assert len(service.list_events("request")) > 5
    assert all(line["request"] for line in service.list_events("request"))
    assert any("no such table" in line.get("exception", "") for line in service.lines()), (
        "errors were logged with their rows"
    )
    for secret in [*secrets, unused, session, session + "x", signature, signature.removeprefix("0x")]:
        assert len(secret) >= 32
        assert secret not in written
