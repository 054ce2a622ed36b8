"""Ctrl-C in a program that uses a portal: the trio side is cancelled, waited for, and the program ends."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import asyncio
import signal
from contextlib import asynccontextmanager

import trio

import playhead

# A shell starts what runs in its background with the signal ignored, and tests run there too.
signal.signal(signal.SIGINT, signal.default_int_handler)


@asynccontextmanager
async def context():
    try:
        yield
    except BaseException as error:  # the test asserts its type, Cancelled among them
        print("context:", type(error).__name__, flush=True)
        raise


async def wait():
    print("ready", flush=True)
    try:
        await trio.sleep_forever()
    except BaseException as error:  # the test asserts its type, Cancelled among them
        print("call:", type(error).__name__, flush=True)
        raise


async def items():
    yield await wait()


async def in_asyncio(use):
    async with playhead.asyncio_portal() as portal:
        await portal.enter(context())
        match use:
            case "call":
                await portal.call(wait)
            case "iterate":
                await anext(portal.iterate(items()))
            case "neither":
                await portal.call(print, "ready", flush=True)
                await asyncio.Event().wait()


def in_a_thread(use):
    with playhead.blocking_portal() as portal:
        portal.enter(context())
        match use:
            case "call":
                portal.call(wait)
            case "iterate":
                next(portal.iterate(items()))
            case "neither":
                portal.call(print, "ready", flush=True)
                import threading
                threading.Event().wait()


"""


@pytest.mark.parametrize("use", ["call", "iterate", "neither"])
@pytest.mark.parametrize(
    "start", ["asyncio.run(in_asyncio({!r}))", "in_a_thread({!r})"], ids=["asyncio", "thread"]
)
def test_ctrl_c_cancels_the_trio_side_and_ends_the_program(start: str, use: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-c", PROGRAM + start.format(use)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            process.send_signal(signal.SIGINT)
            said, trace = process.communicate(timeout=60)
        finally:
            process.kill()
    expected = ["context: Cancelled"] if use == "neither" else ["call: Cancelled", "context: Cancelled"]
    assert said.splitlines() == expected
    assert process.returncode == -signal.SIGINT
    assert trace.splitlines()[-1] == "KeyboardInterrupt"
