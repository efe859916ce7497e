"""Opens files to read that are files: at a pipe a reader would wait for ever, and a device never ends."""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

# A pipe without a writer is opened at once, and refused then; Windows would change line ends.
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def open_regular(path: Path) -> BufferedReader:
    """Return a file, open for its bytes; OSError where it cannot be opened or is a folder, a pipe or a device."""
    descriptor = os.open(path, _FLAGS)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is a pipe or a device, and no file", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: Path) -> bytes:
    """Return the bytes of a file; OSError as `open_regular`."""
    with open_regular(path) as file:
        return file.read()
