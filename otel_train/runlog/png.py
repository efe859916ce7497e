"""Writes pictures as PNG with the standard library alone."""

from __future__ import annotations

import struct
import zlib
from typing import Final

_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
# Colour types of the PNG specification (third edition, 2025, section 11.2.1), by channels.
_COLOUR_TYPES: Final = {1: 0, 2: 4, 3: 2, 4: 6}


def png(width: int, height: int, channels: int, pixels: bytes) -> bytes:
    """Return a PNG of 8 bits a channel: grey, grey and alpha, RGB or RGBA; ValueError where the sizes do not agree.

    `pixels` are the rows from the top, each pixel's channels beside one another.
    """
    stride = width * channels
    if channels not in _COLOUR_TYPES or width < 1 or height < 1 or len(pixels) != stride * height:
        raise ValueError(f"{len(pixels)} bytes are no picture of {width} x {height} pixels in {channels} channels")
    # Before each row stands its filter: 0 is none.
    rows = b"".join(b"\0" + pixels[start : start + stride] for start in range(0, len(pixels), stride))
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOUR_TYPES[channels], 0, 0, 0)
    return _SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(rows, 6)) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
