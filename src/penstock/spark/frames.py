"""Frame what a shard keeps as bytes: named parts, compressed, checked, in pieces small enough for a state store."""

import json
import zlib

import pyarrow as pa

from penstock.errors import StateError

FORMAT = 10  # of everything a shard keeps in the state store
PIECE = 256 * 1024  # state stores move values of some hundred KB best
WORD = 8
CODEC = "lz4"


def to_bytes(parts: dict[str, bytes]) -> bytes:
    """Return named parts as one string of bytes with a checksum. O(bytes)."""
    names = json.dumps({name: len(data) for name, data in parts.items()}).encode()
    body = b"".join([len(names).to_bytes(WORD, "big"), names, *parts.values()])
    packed = pa.compress(body, CODEC, asbytes=True)
    rest = len(body).to_bytes(WORD, "big") + packed
    return b"".join([FORMAT.to_bytes(WORD, "big"), zlib.crc32(rest).to_bytes(WORD, "big"), rest])


def from_bytes(data: bytes) -> dict[str, bytes]:
    """Return the parts that ``to_bytes`` framed.

    Raises:
        StateError: if they are of another format, or damaged.
    """
    if len(data) < 3 * WORD:
        raise StateError("state", f"{len(data)} bytes", "it is not whole: start from another checkpoint")
    form, check, size = (int.from_bytes(data[at : at + WORD], "big") for at in range(0, 3 * WORD, WORD))
    if form != FORMAT:
        raise StateError("state", f"format {form}", f"this Penstock reads format {FORMAT}: use the one that wrote it")
    if zlib.crc32(data[2 * WORD :]) != check:
        raise StateError("state", "damaged bytes", "start from another checkpoint")
    body = memoryview(pa.decompress(data[3 * WORD :], size, CODEC))
    end = WORD + int.from_bytes(body[:WORD], "big")
    parts = {}
    for name, length in json.loads(bytes(body[WORD:end])).items():
        parts[name] = bytes(body[end : end + length])
        end += length
    return parts


def pieces(data: bytes) -> list[bytes]:
    """Cut bytes into pieces."""
    return [data[at : at + PIECE] for at in range(0, len(data), PIECE)]
