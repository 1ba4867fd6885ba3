"""Tells a file that is no text by its first bytes."""

from __future__ import annotations

from collections.abc import Iterator

from rerail.lazy_patterns import lazy

_STRANGE = bytes((*range(1, 7), *range(14, 27), *range(28, 32)))
_HOLE = lazy(rb"\x00{64,}")
# Bytes that no text holds, close behind one another.
_JUNK = lazy(
    rb"[\x01-\x06\x0e-\x1a\x1c-\x1f](?:[^\x01-\x06\x0e-\x1a\x1c-\x1f]{0,63}[\x01-\x06\x0e-\x1a\x1c-\x1f]){15,}"
)
_NOISE_STRANGE, _NOISE_UNDECODABLE = 0.05, 0.2
_LINE = lazy(rb"(?:^|\n)[\t\x20-\x7e]{20,}\r?(?=\n|$)")
# What gzip, zstandard, xz or bzip2 packed once is unpacked before anybody looks here.
_PACKED = (
    (b"PK\x03\x04", "a zip archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"Rar!\x1a\x07", "a rar archive"),
    (b"\x04\x22\x4d\x18", "packed by lz4"),
    (b"\xff\x06\x00\x00sNaPpY", "packed by snappy"),
    (b"\x89LZO\x00", "packed by lzop"),
    (b"\x1f\x8b\x08", "packed twice, by gzip inside"),
    (b"\x28\xb5\x2f\xfd", "packed twice, by zstandard inside"),
    (b"\xfd7zXZ\x00", "packed twice, by xz inside"),
    (b"BZh91AY&SY", "packed twice, by bzip2 inside"),
)
_MAGIC = tuple(magic for magic, _ in _PACKED)


def packed_as(chunk: bytes) -> str | None:
    """Return what a first chunk of bytes is packed by, in words, or None."""
    if not chunk.startswith(_MAGIC):
        return None
    return next(said for magic, said in _PACKED if chunk.startswith(magic))


def holes_in(block: bytes) -> Iterator[tuple[int, int]]:
    """Yield where the holes of a block of bytes begin and end."""
    return (hole.span() for hole in _HOLE.finditer(block))


def junk_in(block: bytes) -> Iterator[tuple[int, int]]:
    """Yield where bytes that are no text begin and end in a block of text in any encoding."""
    if block.isascii() or len(block) - len(block.translate(None, _STRANGE)) < 16:
        return
    for junk in _JUNK.finditer(block):
        if _is_noise(junk[0]):
            yield junk.span()


def looks_binary(chunk: bytes) -> bool:
    """Tell whether a first chunk is not text: a pickle, or mostly bytes that no log holds."""
    # A file that was truncated while its writer went on has a hole of NUL bytes.
    head = _HOLE.sub(b"", chunk)[:4096] if b"\0" in chunk[:4096] else chunk[:4096]
    if packed_as(head):
        return True
    if head[:2] in (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05") or head[:4] in (
        b"\x7fELF",
    ):
        return True
    if not head:
        return False  # a hole, behind which text may follow
    if _is_utf16(head):
        return False
    strange = _strange(head)
    if strange > len(head) * 0.1 or head.count(0) > len(head) * 0.6:
        return True
    return strange > len(head) * _NOISE_STRANGE and _is_noise(head) and not _LINE.search(chunk)


def _is_utf16(head: bytes) -> bool:
    """Tell whether bytes begin with the mark of UTF-16 and can be read as it; what stands by chance there cannot."""
    if not head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return False
    try:
        head[: len(head) // 2 * 2 - 2].decode("utf-16")  # the last sign may be half of a pair
    except UnicodeDecodeError:
        return False
    return True


def _strange(data: bytes) -> int:
    return len(data) - len(data.translate(None, _STRANGE))


def _is_noise(head: bytes) -> bool:
    """Tell whether strange bytes stand at even and odd places, which no UTF-16 text shows, among bytes of no UTF-8."""
    undecodable = head.decode("utf-8", "replace").count("\ufffd")
    few, many = sorted((_strange(head[::2]), _strange(head[1::2])))
    return undecodable > len(head) * _NOISE_UNDECODABLE and few * 4 > many
