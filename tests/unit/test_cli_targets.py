"""What `playhead play` and `playhead read` take of a tool's answer."""

from __future__ import annotations

import pytest

from playhead.cli.targets import find_media
from playhead.client import connect
from playhead.errors import ProtocolError
from tests.servers.sample import sample_server


async def test_reading_takes_the_first_thing_that_can_be_opened_and_playing_the_first_sound() -> None:
    async with connect(sample_server()) as session:
        uris = {"uris": ["resource://plain/notes", "resource://plain/flac"]}
        assert (await find_media(session, "links", uris, playable=False)).uri == "resource://plain/notes"
        assert (await find_media(session, "links", uris, playable=True)).uri == "resource://plain/flac"


async def test_what_is_no_sound_is_played_where_there_is_nothing_else() -> None:
    async with connect(sample_server()) as session:
        found = await find_media(session, "links", {"uris": ["resource://plain/notes"]}, playable=True)
        assert found.uri == "resource://plain/notes"


async def test_an_answer_without_anything_to_open_says_what_came() -> None:
    async with connect(sample_server()) as session:
        with pytest.raises(ProtocolError, match=r"a resource link or a blob.*got text"):
            await find_media(session, "what_was_read", {}, playable=False)
