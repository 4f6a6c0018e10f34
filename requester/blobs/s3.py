"""Blobs in a bucket of an S3-compatible store, which readers and uploaders reach directly.

A blob is the object `blobs/<hex of its digest>`, the list of its piece digests `pieces/<the same>`. A direct upload
lies at `doors/<hash of its name>` until it is read; an expiry of a day on that prefix deletes unread ones. Bytes are
checked against their digest at every read: a writer to the bucket cannot make the service take other bytes. Credentials
come from boto3's own chain: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_SHARED_CREDENTIALS_FILE, or the machine's
role.
"""

import errno
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import boto3
from blake3 import blake3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from gradmarket.market.errors import Conflict, NotFound
from gradmarket.market.terms import Digest
from gradmarket.market.wire.framing import PartAddress
from gradmarket.network.environment import find_authorities, proxy_of
from graphdoc.encoding import Bytes
from requester.blobs.disk import DiskBlobs, Incoming
from requester.settings import RequesterSettings

PART: Final = 5 << 20
"""Bytes of each part but the last: the least that S3 takes, since a broken connection loses one."""


class PartUploads:
    """Uploads in parts, by boto3's client; its errors pass through."""

    def __init__(self, store: Any, bucket: str) -> None:
        self._store, self._bucket = store, bucket

    def begun(self, key: str) -> str | None:
        """Returns the id of the first upload to `key` that is not complete, or None."""
        listed = self._store.list_multipart_uploads(Bucket=self._bucket, Prefix=key).get("Uploads", ())
        ids = sorted((upload["Initiated"], upload["UploadId"]) for upload in listed if upload["Key"] == key)
        return str(ids[0][1]) if ids else None

    def begin(self, key: str) -> str:
        return str(self._store.create_multipart_upload(Bucket=self._bucket, Key=key)["UploadId"])

    def list_received_parts(self, key: str, upload: str) -> dict[int, tuple[int, str]]:
        """Returns length and version of the received parts, by number from 1 on."""
        pages = self._store.get_paginator("list_parts").paginate(Bucket=self._bucket, Key=key, UploadId=upload)
        parts = (part for page in pages for part in page.get("Parts", ()))
        return {part["PartNumber"]: (part["Size"], part["ETag"]) for part in parts}

    def missing(self, key: str, length: int) -> tuple[str, dict[int, tuple[int, int]]]:
        """Returns the id of the upload, begun if necessary, and its missing parts, as `compute_part_spans`."""
        upload = self.begun(key) or self.begin(key)
        there = self.list_received_parts(key, upload)
        return upload, {n: span for n, span in compute_part_spans(length).items() if there.get(n, (0,))[0] != span[1]}

    def complete_upload(self, key: str, length: int) -> None:
        """Makes an object of an upload in parts, whose addresses then take nothing; raises NotFound for
        a missing part.
        """
        upload = self.begun(key) if length > PART else None
        if upload is None:
            return
        there = self.list_received_parts(key, upload)
        if {n: size for n, (size, _) in there.items()} != {
            n: size for n, (_, size) in compute_part_spans(length).items()
        }:
            raise NotFound(f"only {len(there)} of the expected parts arrived")
        named = [{"PartNumber": number, "ETag": there[number][1]} for number in sorted(there)]
        self._store.complete_multipart_upload(
            Bucket=self._bucket, Key=key, UploadId=upload, MultipartUpload={"Parts": named}
        )


def compute_part_spans(length: int) -> dict[int, tuple[int, int]]:
    """Returns first byte and length of each part, by number from 1 on."""
    return {1 + start // PART: (start, min(PART, length - start)) for start in range(0, length, PART)}


LINK_S: Final = 900
"""Seconds that an address serves a blob; a longer download asks the service again and resumes."""
LONGEST_LINK_S: Final = 7 * 86_400
CHUNK: Final = 2**20
ABSENT: Final = frozenset({"404", "NoSuchKey", "NotFound"})
OVERTAKEN: Final = "the bytes changed while they were read"
CHANGED: Final = frozenset({"412", "PreconditionFailed", "ConditionalRequestConflict"})


class StoreDown(OSError):
    """The store failed or did not answer."""

    def __init__(self, why: str) -> None:
        super().__init__(errno.EIO, why)


@dataclass(frozen=True)
class Door:
    """An object that was uploaded directly to the store, in the version that was read."""

    key: str
    version: str


class S3Blobs:
    """`store` is the client for the service's own requests; `public` makes the addresses that others use."""

    reached_past_us = True

    def __init__(self, store: Any, public: Any, bucket: str, spool: DiskBlobs) -> None:
        self._store = store
        self._public = public
        self._bucket = bucket
        self._spool = spool
        self.unfinished = spool.unfinished
        self._parts = PartUploads(store, bucket)

    def has(self, digest: Digest) -> bool:
        try:
            self.length(digest)
        except NotFound:
            return False
        return True

    def length(self, digest: Digest) -> int:
        with _translate_errors(f"no blob {digest}"):
            head = self._store.head_object(Bucket=self._bucket, Key=_build_blob_key(digest))
        return int(head["ContentLength"])

    def read(self, digest: Digest) -> bytes:
        with self.mapped(digest) as data:
            return bytes(data)

    @contextmanager
    def mapped(self, digest: Digest) -> Iterator[Bytes]:
        with self._spool.receive() as incoming:
            self._fetch_object(_build_blob_key(digest), incoming, f"no blob {digest}")
            if incoming.digest != digest:
                raise StoreDown(f"the store's {digest} is {incoming.digest}")
            with incoming.mapped() as data:
                yield data

    def where(self, digest: Digest) -> str:
        """Returns an address that serves the blob; raises NotFound, which the store would report in its own form."""
        self.length(digest)
        return self._presign_url("get_object", LINK_S, Key=_build_blob_key(digest))

    def pieces(self, digest: Digest) -> bytes:
        with _translate_errors(f"no pieces of {digest} are listed"):
            answer = self._store.get_object(Bucket=self._bucket, Key=_pieces_key(digest))
            return bytes(answer["Body"].read())

    def put(self, data: bytes) -> Digest:
        with self._spool.receive() as incoming:
            incoming.write(data)
            return self.store_blob(incoming)

    @contextmanager
    def receive(self) -> Iterator[Incoming]:
        with self._spool.receive() as incoming:
            yield incoming

    def continued(self, owner: str, name: str, start: int) -> AbstractContextManager[Incoming]:
        return self._spool.continued(owner, name, start)

    def store_blob(self, incoming: Incoming, expected: Digest | None = None) -> Digest:
        digest = incoming.digest
        if expected is not None and digest != expected:
            raise Conflict(f"the bytes are {digest}, not {expected}")
        if isinstance(incoming.lies, Door):
            self._copy_upload(incoming.lies, digest)
        else:
            with _translate_errors(), incoming.reopen_file() as file:
                self._store.upload_fileobj(file, self._bucket, _build_blob_key(digest))
        if pieces := incoming.pieces:
            with _translate_errors():
                self._store.put_object(Bucket=self._bucket, Key=_pieces_key(digest), Body=pieces)
        return digest

    def drop(self, digest: Digest) -> None:
        for key in (_pieces_key(digest), _build_blob_key(digest)):
            with _translate_errors():
                self._store.delete_object(Bucket=self._bucket, Key=key)

    def door(self, name: str, length: int, seconds: float) -> str | None:
        """Returns an address that signs the length: the store refuses any other."""
        if length > PART:
            return None
        return self._presign_url("put_object", max(1, int(seconds)), Key=_build_upload_key(name), ContentLength=length)

    def missing_parts(self, name: str, length: int) -> list[PartAddress]:
        """Returns the addresses of the missing parts, each of which signs its part's length."""
        key = _build_upload_key(name)
        with _translate_errors():
            upload, missing = self._parts.missing(key, length)
        return [
            PartAddress(start=start, length=size, address=self._part_address(key, upload, n, size))
            for n, (start, size) in missing.items()
        ]

    def _part_address(self, key: str, upload: str, number: int, size: int) -> str:
        about = {"Key": key, "UploadId": upload, "PartNumber": number, "ContentLength": size}
        return self._presign_url("upload_part", LINK_S, **about)

    @contextmanager
    def left(self, name: str, length: int) -> Iterator[Incoming]:
        key = _build_upload_key(name)
        with self._spool.receive() as incoming:
            with _translate_errors("nothing was put there"):
                self._parts.complete_upload(key, length)
                head = self._store.head_object(Bucket=self._bucket, Key=key)
            try:
                if head["ContentLength"] != length:
                    raise Conflict(f"{head['ContentLength']} bytes were put there, not {length}")
                incoming.lies = self._fetch_object(key, incoming, "nothing was put there")
                yield incoming
            finally:
                with _translate_errors():
                    self._store.delete_object(Bucket=self._bucket, Key=key)

    def _fetch_object(self, key: str, incoming: Incoming, otherwise: str) -> Door:
        with _translate_errors(otherwise):
            answer = self._store.get_object(Bucket=self._bucket, Key=key)
            for chunk in answer["Body"].iter_chunks(CHUNK):
                incoming.write(chunk)
        return Door(key, answer["ETag"])

    def _copy_upload(self, door: Door, digest: Digest) -> None:
        """Copies the version that was read, not a later one. Some stores ignore the condition: the copy is checked.

        A version of several parts, `...-2`, becomes another in the copy; it is not checked, since no address leads
        there any more.
        """
        if self.has(digest):
            return
        source = {"Bucket": self._bucket, "Key": door.key}
        with _translate_errors("what was put there is gone"):
            copied = self._store.copy_object(
                Bucket=self._bucket, Key=_build_blob_key(digest), CopySource=source, CopySourceIfMatch=door.version
            )
        if "-" not in door.version and copied["CopyObjectResult"]["ETag"] != door.version:
            self.drop(digest)
            raise Conflict(OVERTAKEN)

    def _presign_url(self, operation: str, seconds: int, **about: Any) -> str:
        parameters = {"Bucket": self._bucket, **about}
        address: str = self._public.generate_presigned_url(
            operation, parameters, ExpiresIn=min(seconds, LONGEST_LINK_S)
        )
        return address


@contextmanager
def _translate_errors(otherwise: str = "no such object") -> Iterator[None]:
    """Raises NotFound(otherwise), Conflict or StoreDown in place of boto3's errors."""
    try:
        yield
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        if code in ABSENT:
            raise NotFound(otherwise) from error
        if code in CHANGED:
            raise Conflict(OVERTAKEN) from error
        raise StoreDown(str(error)) from error
    except BotoCoreError as error:
        raise StoreDown(str(error)) from error


def _build_blob_key(digest: Digest) -> str:
    return "blobs/" + _parse_digest_hex(digest)


def _pieces_key(digest: Digest) -> str:
    return "pieces/" + _parse_digest_hex(digest)


def _parse_digest_hex(digest: Digest) -> str:
    name = digest.removeprefix("blake3:")
    if len(name) != 64 or not set(name) <= set("0123456789abcdef"):
        raise NotFound(f"no digest: {digest[:80]}")
    return name


def _build_upload_key(name: str) -> str:
    """Returns a key with the name's hash: no name from a stranger becomes a path."""
    return "doors/" + blake3(name.encode()).hexdigest()


def open_store(settings: RequesterSettings) -> S3Blobs:
    """Opens the bucket of the settings; creates it where it is missing."""
    own = str(settings.s3_endpoint) if settings.s3_endpoint else None
    public = str(settings.s3_public_endpoint) if settings.s3_public_endpoint else own
    session = boto3.session.Session()  # reads its descriptions of S3 once
    store = _build_client(session, own, settings.s3_region)
    try:
        with _translate_errors():
            store.head_bucket(Bucket=settings.s3_bucket)
    except NotFound:
        place = (
            {}
            if settings.s3_region == "us-east-1"
            else {"CreateBucketConfiguration": {"LocationConstraint": settings.s3_region}}
        )
        with _translate_errors():
            store.create_bucket(Bucket=settings.s3_bucket, **place)
    spool = DiskBlobs(settings.data / "spool", to_stay=False, unfinished=settings.unfinished_bytes)
    return S3Blobs(store, _build_client(session, public, settings.s3_region), settings.s3_bucket, spool)


def _build_client(session: boto3.session.Session, endpoint: str | None, region: str) -> Any:
    """Returns a client with the environment's proxy and trust, like every client of the service."""
    place = urlsplit(endpoint or f"https://s3.{region}.amazonaws.com")
    proxy = proxy_of(place.scheme, place.hostname or "", place.port)
    config = Config(
        signature_version="s3v4",
        s3={"addressing_style": "path" if endpoint else "auto"},
        retries={"max_attempts": 3, "mode": "standard"},
        connect_timeout=5,
        read_timeout=60,
        max_pool_connections=32,
        proxies={place.scheme: proxy} if proxy else {},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    verify = find_authorities()
    return session.client("s3", endpoint_url=endpoint, region_name=region, config=config, verify=verify)
