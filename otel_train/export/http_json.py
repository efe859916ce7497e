"""Makes one OTLP/HTTP JSON body of many parts of run log lines, as they stand on disk."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from otel_train.otlp.encode import PREFIXES, SUFFIX

# Of 131 bytes a point level 1 makes 17.6 in 0.72 µs, 4 makes 14.2 in 1.16, 6 makes 13.8 in 1.50 (two cores, loaded).
GZIP_LEVEL = 1
_GZIP_WBITS = 16 + zlib.MAX_WBITS


def json_body(signal: str, parts: Sequence[bytes]) -> bytes:
    """Return one request. Two lines in one body would be answered with 200, and the second lost without a word."""
    return b"".join((PREFIXES[signal], b",".join(parts), SUFFIX.rstrip(b"\n")))


def gzipped(body: bytes) -> bytes:
    """Compress a body as gzip, without a time in its header."""
    packer = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, _GZIP_WBITS)
    return packer.compress(body) + packer.flush()
