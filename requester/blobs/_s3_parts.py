"""Uploads to an object in parts, which the store keeps until they are complete (S3's multipart uploads)."""

from typing import Any, Final

from gradmarket.market.errors import NotFound

PART: Final = 5 << 20
"""Bytes of each part but the last: the least that S3 takes, since a broken connection loses one."""


class PartUploads:
    """Raises what boto3 raises."""

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
        """Returns length and version of the parts that have come, by number from 1 on."""
        pages = self._store.get_paginator("list_parts").paginate(Bucket=self._bucket, Key=key, UploadId=upload)
        parts = (part for page in pages for part in page.get("Parts", ()))
        return {part["PartNumber"]: (part["Size"], part["ETag"]) for part in parts}

    def missing(self, key: str, length: int) -> tuple[str, dict[int, tuple[int, int]]]:
        """Returns the id of the upload, begun where there is none, and what has not come of it: as `spans`."""
        upload = self.begun(key) or self.begin(key)
        there = self.list_received_parts(key, upload)
        return upload, {n: span for n, span in compute_part_spans(length).items() if there.get(n, (0,))[0] != span[1]}

    def complete_upload(self, key: str, length: int) -> None:
        """Makes an object of an upload in parts, whose addresses take nothing then; raises NotFound where one lacks."""
        upload = self.begun(key) if length > PART else None
        if upload is None:
            return
        there = self.list_received_parts(key, upload)
        if {n: size for n, (size, _) in there.items()} != {
            n: size for n, (_, size) in compute_part_spans(length).items()
        }:
            raise NotFound(f"of the parts that were to be put there {len(there)} came")
        named = [{"PartNumber": number, "ETag": there[number][1]} for number in sorted(there)]
        self._store.complete_multipart_upload(
            Bucket=self._bucket, Key=key, UploadId=upload, MultipartUpload={"Parts": named}
        )


def compute_part_spans(length: int) -> dict[int, tuple[int, int]]:
    """Returns first byte and length of each part, by number from 1 on."""
    return {1 + start // PART: (start, min(PART, length - start)) for start in range(0, length, PART)}
