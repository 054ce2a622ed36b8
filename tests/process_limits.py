"""Limits of this process that stand for a full disk, and for too many open files."""

from __future__ import annotations

import gc
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def largest_file(limit_bytes: int) -> Iterator[None]:
    """Let no file of this process grow past `limit_bytes`: a write fails with EFBIG, after a short one."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """Leave this process `count` free descriptors. Nothing that was left behind is closed meanwhile."""
    gc.collect()
    gc.disable()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(int(name) for name in os.listdir("/dev/fd")) + 1  # noqa: PTH208 - names alone
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 64, limits[1]))
    taken = []
    try:
        try:
            while True:
                taken.append(os.dup(0))
        except OSError:
            for descriptor in taken[len(taken) - count :]:
                os.close(descriptor)
            del taken[len(taken) - count :]
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        gc.enable()
