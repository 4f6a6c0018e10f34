"""The auditor's side of a panel: its key, and the seal and opening of its answer (market.features.auditors)."""

import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from eth_keys.datatypes import PrivateKey
from pydantic import ValidationError

from contracts.keystore import parse_key
from gradmarket.market.errors import NotFound, Refused
from gradmarket.market.features.auditors import AuditSeal, derive_salt, seal_audit
from gradmarket.market.fields import AddressField, DigestField
from gradmarket.market.messages import Offer
from gradmarket.market.signing import Domain, address_of, digest_struct, sign_digest
from gradmarket.market.terms import Address, Digest, JobId, TaskId, blob_digest
from gradmarket.market.wire import Wire
from gradmarket.market.wire.audit_messages import KeptSeal, PanelOpening, PanelSeal
from gradmarket.market.wire.poll import OfferFields, hash_of
from worker import durable
from worker.features.disputes.kept_receipts import find_receipts_file

KEY: Final = "wallet.key"
"""As a worker's, so that `gradmarket wallet dispute answer --data FOLDER` stands by the auditor's answer."""


MOST_OPENED: Final = 1024
"""Opened answers that an auditor keeps: a referee asks about one soon after it was opened, or never."""


class OpenedAnswer(Wire):
    """An answer that an auditor computed and opened to a panel; `signer` is the service's, by its own word then."""

    job: JobId
    offer: OfferFields
    root: DigestField
    signer: AddressField


@dataclass(frozen=True)
class OpenedAnswers:
    """Files of the newest answers that an auditor opened, by task: it defends these, and no other, before a referee."""

    folder: Path

    def keep(self, task: str, answer: OpenedAnswer) -> None:
        durable.write_file_atomically(self._find_file(task), answer.model_dump_json().encode())
        files = sorted(self.folder.glob("*.opened"), key=lambda path: path.stat().st_mtime)
        for oldest in files[:-MOST_OPENED]:
            oldest.unlink(missing_ok=True)

    def keep_seal(self, domain: Domain, task: TaskId, offer: Offer, seal: PanelSeal) -> None:
        """Appends a seal that the service took, beside the receipts of hearings: `gradmarket audit --receipts` looks it
        up."""
        fields = seal.model_dump(exclude={"auditor"})
        kept = KeptSeal(job=offer.job, task=task, offer=digest_struct(domain, offer), **fields)
        path = find_receipts_file(self.folder, domain.instance, offer.job)
        durable.append_line(path, kept.model_dump_json().encode() + b"\n")

    def find(self, task: str) -> OpenedAnswer:
        """Raises NotFound where this auditor opened no answer to the task."""
        try:
            return OpenedAnswer.model_validate_json(self._find_file(task).read_bytes())
        except (FileNotFoundError, ValidationError):
            raise NotFound(f"this auditor opened no answer to {task[:80]}") from None

    def _find_file(self, task: str) -> Path:
        return self.folder / f"{blob_digest(task.encode())[-32:]}.opened"


@dataclass(frozen=True)
class SealingKey:
    """Seals and opens answers of one auditor, which need not remember them: the salt comes from its key."""

    auditor: str
    key: PrivateKey

    @cached_property
    def signer(self) -> Address:
        return address_of(self.key)

    def seal(self, domain: Domain, offer: Offer, run: int, root: Digest) -> PanelSeal:
        """Returns the signed seal of an answer."""
        name, signer = digest_struct(domain, offer), self.signer
        sealed = seal_audit(name, signer, run, derive_salt(self.key.to_bytes(), name, run), hash_of(root))
        signature = sign_digest(self.key, digest_struct(domain, AuditSeal(name, signer, run, sealed)))
        return PanelSeal(auditor=self.auditor, run=run, signer=signer, sealed=sealed, signature=signature)

    def open(self, domain: Domain, offer: Offer, run: int, root: Digest, seconds: float) -> PanelOpening:
        """Returns the opening of this answer's seal."""
        salt = derive_salt(self.key.to_bytes(), digest_struct(domain, offer), run)
        return PanelOpening(auditor=self.auditor, run=run, root=root, salt=salt, seconds=seconds)


def load_or_create_sealing_key(folder: Path, auditor: str) -> SealingKey:
    """Returns the key of the auditor whose folder this is; raises Refused where its file holds none.

    Of two auditors that start at once in a new folder one makes the key, and both read it.
    """
    path = folder / KEY
    folder.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        beside = folder / f".{KEY}.{os.getpid()}"
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(secrets.token_bytes(32).hex() + "\n")
        with suppress(FileExistsError):
            os.link(beside, path)
        beside.unlink()
    try:
        return SealingKey(auditor, parse_key(path.read_text(errors="replace"), str(path)))
    except Refused as error:
        raise Refused(f"{path} is no key of an auditor", "delete the file: a new key is made") from error
