"""Names of tools: valid for every provider, unique, stable, and mapped back exactly."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.client.hub import catalog
from playhead.client.hub.catalog import ToolKey, model_name, name_tools

VALID = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")

WORDS = st.one_of(
    st.text(max_size=500),
    st.text(alphabet="ab_", max_size=6),  # ids that several keys share
    st.text(alphabet="ab_é\ud800", max_size=80),  # names that differ only in what a model may not see
    st.sampled_from(["", "a", "a__b", "b__c", "__", "_", "1st", "x" * 500, "x" * 499 + "y"]),
)
KEYS = st.lists(st.tuples(WORDS, WORDS), max_size=20)


@pytest.mark.requirement("CF-03")
@pytest.mark.requirement("CF-04")
@given(KEYS)
def test_every_name_is_valid_and_unique(keys: list[ToolKey]) -> None:
    names = name_tools(keys)
    assert set(names) == set(keys)
    assert len(set(names.values())) == len(set(keys))
    assert all(map(VALID.fullmatch, names.values()))


@given(KEYS, st.randoms())
def test_the_order_of_registration_changes_no_name(keys: list[ToolKey], random: object) -> None:
    shuffled = list(keys)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert name_tools(shuffled) == name_tools(keys)


@given(KEYS, st.integers(0, 20))
def test_which_servers_are_connected_changes_no_name(keys: list[ToolKey], some: int) -> None:
    in_the_file = {server for server, _ in keys}
    whole = name_tools(keys, servers=in_the_file)
    part = name_tools(keys[:some], servers=in_the_file)
    assert all(whole[key] == name for key, name in part.items())


@pytest.mark.parametrize(
    ("server", "tool", "name"),
    [
        ("audio", "musicPlayer", "audio__musicPlayer"),
        ("gateway", "github__create_issue", "gateway__github__create_issue"),
        ("a-b", "c", "a-b__c"),
        ("_", "x", "___x"),
        ("s" * 30, "t" * 32, "s" * 30 + "__" + "t" * 32),
    ],
)
def test_an_id_that_a_model_can_take_is_the_name(server: str, tool: str, name: str) -> None:
    assert model_name(server, tool, servers=["audio", "other", server]) == name


@pytest.mark.parametrize(
    ("server", "tool", "readable"),
    [
        ("my server", "get.weather", "my_server__get_weather_"),
        ("musik", "spiele_für_mich", "musik__spiele_f_r_mich_"),
        ("1password", "list", "_1password__list_"),
        ("a", ".", "a____"),
        ("s" * 30, "t" * 33, "s" * 30 + "__" + "t" * 21 + "_"),
    ],
)
def test_other_names_stay_readable_and_end_in_a_hash(server: str, tool: str, readable: str) -> None:
    assert re.fullmatch(re.escape(readable) + "[0-9a-f]{10}", model_name(server, tool))


def test_the_names_of_keys_that_share_an_id_both_end_in_a_hash() -> None:
    named = name_tools([("a__b", "c"), ("a", "b__c")])
    assert all(re.fullmatch("a__b__c_[0-9a-f]{10}", name) for name in named.values())
    # The same, when the other server is only in the file.
    assert name_tools([("a", "b__c")], servers=["a__b"])["a", "b__c"] == named["a", "b__c"]


def test_a_tool_that_is_named_like_anothers_hash_does_not_get_its_name() -> None:
    taken = model_name("a", "ü")
    named = name_tools([("a", "ü"), ("a", taken.removeprefix("a__"))])
    assert named["a", "ü"] == taken


def test_hashes_that_collide_are_told_apart_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "HASH_DIGITS", 1)
    keys = [("a", "é" * n) for n in range(1, 13)]
    assert len(set(name_tools(keys).values())) == len(keys)
    assert name_tools(keys[::-1]) == name_tools(keys)


def test_names_are_the_same_on_every_run() -> None:
    assert model_name("a", "ü") == "a____25591961e1"
