"""Our own audio server under the probes of resources, ranges, sound and prompts: nothing found."""

from __future__ import annotations

import pytest

from playhead.check.probes.prompts import probe_prompts
from playhead.check.probes.resources import probe_resources
from playhead.check.probes.tools import probe_media
from playhead.check.target import Target
from playhead.servers.audio import AudioServerOptions
from playhead.servers.audio.audio_server import open_audio_server
from tests.unit.check.check_kit import defects, probed, undecided


async def everything(target: Target) -> None:
    await probe_resources(target)
    await probe_prompts(target)
    answer = await target.request(
        "tools/call", {"name": "musicPlayer", "arguments": {"query": "first light"}}
    )
    assert answer.result is not None
    await probe_media(target, [answer.result, answer.result], tool="musicPlayer")


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_nothing_is_found_of_the_audio_server(mode: str) -> None:
    async with open_audio_server(AudioServerOptions(mixer="memory")) as server:
        tests = await probed(server, everything, mode=mode)
    assert (defects(tests), undecided(tests)) == (set(), [])
    passed = {check.kind.name for test in tests for check in test.checks if check.verdict == "passed"}
    assert passed >= {
        "audio.decodes",
        "audio.mime-type",
        "prompts.messages",
        "reads.page-bytes",
        "reads.past-end",
        "reads.size",
        "reads.stream",
        "resources.error-code",
    }
