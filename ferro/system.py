"""What operating systems do differently: how much memory there is, locks of files, signals.

Nothing here fails where a system lacks it: modules that are not there everywhere are imported by
this one alone (and by those that say what they do without).
"""

from __future__ import annotations

import os
import signal

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LOCKS = fcntl is not None  # False: `lock` holds nobody off
OWN = getattr(os, "O_CLOEXEC", 0)  # opens for this process alone; Windows does so anyway
# what processes are ended with from outside, as exit codes
ENDED = tuple(-getattr(signal, name) for name in ("SIGKILL", "SIGTERM") if hasattr(signal, name))
UNKNOWN = 1 << 62  # more than any limit, so that nothing is refused


def total_memory() -> int:
    """Bytes of the machine's memory; UNKNOWN where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return UNKNOWN


def lock(descriptor: int, shared: bool = False, wait: bool = False) -> bool:
    """Lock an open file for this process, with others that share it or alone.

    The lock goes when the file is closed or the process ends. False if another process has it and
    ``wait`` is not set; raises OSError for what is no file.
    """
    if fcntl is None:
        return True
    try:
        way = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        fcntl.flock(descriptor, way if wait else way | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
