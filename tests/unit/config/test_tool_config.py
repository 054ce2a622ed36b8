"""Per-tool configuration: what one holds, which tools it is for, and which of many decides."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from playhead.config.servers import ServerConfig
from playhead.config.tools import (
    Delivery,
    Kind,
    Layer,
    Resolution,
    ToolConfig,
    ToolConfigs,
    ToolContent,
    ToolOverride,
    ToolResponse,
    create_dynamic_config,
    create_id_config,
    create_tool_config,
    create_tool_id,
)
from playhead.errors import ConfigError
from playhead.results.plan import DEFAULT_POLICY, Policy


def answer(content: ToolContent) -> ToolResponse:
    return ToolResponse(content.text)


def decided(resolution: Resolution) -> list[Layer]:
    return [step.layer for step in resolution.looked_at if step.decided]


# --- one configuration ------------------------------------------------------------------------------


@pytest.mark.requirement("CF-01")
def test_a_tool_id_is_the_server_and_the_tool_with_two_underscores_between() -> None:
    assert create_tool_id("home", "musicPlayer") == "home__musicPlayer"


@pytest.mark.requirement("CF-05")
def test_a_configuration_is_frozen_saves_and_keeps_results_from_the_model_by_default() -> None:
    config = create_tool_config("home", "musicPlayer")
    assert (config.tool_id, config.server, config.tool) == ("home__musicPlayer", "home", "musicPlayer")
    assert (config.save_output, config.send_result_to_ai, config.response_handler) == (True, False, None)
    assert (config.description, config.system_prompt, dict(config.metadata)) == (None, None, {})
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.save_output = False  # type: ignore[misc]
    with pytest.raises(TypeError):
        config.metadata["a"] = 1  # type: ignore[index]


def test_metadata_is_a_copy_of_what_was_given() -> None:
    given = {"tags": ["a"]}
    config = create_tool_config("home", "x", metadata=given)
    given["more"] = []
    assert dict(config.metadata) == {"tags": ["a"]}
    assert hash(config) == hash(create_tool_config("home", "x", metadata={"tags": ["a"]}))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"description": 1}, "tool configuration s__t: description: expected a string, got int"),
        ({"system_prompt": b"x"}, "system_prompt: expected a string, got bytes"),
        ({"save_output": "no"}, "save_output: expected True or False, got str"),
        ({"send_result_to_ai": None}, "send_result_to_ai: expected True or False, got None"),
        ({"trust_structured": 1}, "trust_structured: expected True or False, got int"),
        ({"response_handler": "m:f"}, "response_handler: expected a function that takes a ToolContent, got"),
        ({"turn": "end"}, "turn: expected one of continue, stop, got 'end'"),
        ({"stops": ["sound"]}, "stops: expected some of audio, link, blob, structured"),
        ({"stops": "audio"}, "stops: expected a set of kinds, got the string 'audio'"),
        ({"metadata": ["a"]}, "metadata: expected a mapping, got list"),
        (
            {"metadata": {"a": {"b": [object()]}}},
            "metadata.a.b[0]: expected a value that JSON can represent, got a object",
        ),
        ({"metadata": {"a": float("nan")}}, "metadata.a: expected a finite number, got nan"),
        ({"metadata": {"a": {1: 2}}}, "metadata.a: expected strings for keys"),
        ({"metadata": {1: 2}}, "metadata: expected strings for keys"),
        ({"metadata": {None: 2}}, "metadata: expected strings for keys"),
    ],
)
def test_a_value_of_the_wrong_type_is_named(settings: Any, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        create_tool_config("s", "t", **settings)
    assert said in str(caught.value)


@pytest.mark.parametrize(("server", "tool"), [("", "t"), ("s", ""), (1, "t"), ("s", None)])
def test_a_tool_without_a_name_is_refused(server: Any, tool: Any) -> None:
    with pytest.raises(ConfigError, match=r"expected a (server|tool)'s name"):
        create_tool_config(server, tool)


# --- which tools it is for --------------------------------------------------------------------------


def fits(config: ToolConfig, server: str, tool: str) -> bool:
    return ToolConfigs([config]).resolve(server, tool).config == config


@pytest.mark.requirement("CF-02")
def test_names_with_two_underscores_are_told_apart_by_the_pair() -> None:
    of_a = create_tool_config("a", "b__c", description="of a")
    of_a_b = create_tool_config("a__b", "c", description="of a__b")
    configs = ToolConfigs([of_a, of_a_b])
    assert of_a.tool_id == of_a_b.tool_id
    assert configs.resolve("a", "b__c").config == of_a
    assert configs.resolve("a__b", "c").config == of_a_b


def test_an_id_alone_is_for_whichever_pair_has_it_and_the_pair_beats_it() -> None:
    by_id, by_pair = create_id_config("a__b__c"), create_tool_config("a__b", "c", send_result_to_ai=True)
    configs = ToolConfigs([by_id, by_pair])
    assert configs.resolve("a", "b__c").config == by_id
    assert configs.resolve("a__b", "c").config == by_pair


@pytest.mark.requirement("CF-02")
def test_an_id_is_found_among_the_servers_that_are_known() -> None:
    find = ToolConfigs().find
    assert find("a__b__c", ["a", "a__b", "b", "a__b__c"]) == (("a", "b__c"), ("a__b", "c"))
    assert find("a__", ["a"]) == ()
    assert find("a_____b", ["a", "a_"]) == (("a", "___b"), ("a_", "__b"))


@pytest.mark.parametrize(
    ("pattern", "server", "tool", "expected"),
    [
        ("home__*", "home", "musicPlayer", True),
        ("home__*", "homer", "x", False),
        ("home__*", "Home", "x", False),
        ("home__get_?", "home", "get_a", True),
        ("home__get_?", "home", "get_ab", False),
        ("*__search", "web", "search", True),
        ("*", "any", "thing", True),
        ("my[x]__*", "my[x]", "t", True),
        ("my[x]__*", "myx", "t", False),
        ("home__*", "home", "line\nbreak", True),
        ("h.me__*", "home", "x", False),
    ],
)
def test_a_pattern_of_ids_fits(pattern: str, server: str, tool: str, expected: bool) -> None:
    assert fits(create_id_config(pattern), server, tool) is expected


def test_a_servers_name_is_taken_literally_where_it_is_given_as_one() -> None:
    assert fits(create_tool_config("my*box", "*"), "my*box", "play")
    assert not fits(create_tool_config("my*box", "*"), "mybox", "play")
    assert not fits(create_tool_config("a", "*"), "a__b", "c")
    assert create_tool_config("my*box", "play").kind is Kind.EXACT


def test_an_exact_key_with_a_wildcard_in_its_servers_name_is_for_that_server_too() -> None:
    assert fits(create_id_config("my*box__play"), "my*box", "play")


def test_the_most_specific_pattern_decides_whatever_the_order() -> None:
    patterns = [
        create_id_config(text)
        for text in ("*", "home__*", "home__get_*", "home__get_a*b*", "home__get_?*", "*__get_ab")
    ] + [create_tool_config("home", "get_*")]
    for configs in (ToolConfigs(patterns), ToolConfigs(reversed(patterns))):
        said = configs.resolve("home", "get_ab").looked_at[2].said
        assert said.split("; less specific: ")[1].split(", ") == [
            "home__get_*",
            "home__get_*",
            "home__get_?*",
            "*__get_ab",
            "home__*",
            "*",
        ]
        assert configs.resolve("home", "get_ab").config == create_id_config("home__get_a*b*")
        assert configs.resolve("home", "get_x").config == create_tool_config("home", "get_*")


def test_of_two_patterns_as_long_the_one_with_fewer_stars_decides() -> None:
    many, few = create_id_config("home__*a*"), create_id_config("home__?*a")
    assert ToolConfigs([many, few]).resolve("home", "xxa").config == few


def test_a_long_name_costs_a_pattern_of_many_stars_nothing() -> None:
    # The naive expression would need longer than anybody has.
    assert not fits(create_id_config("*a" * 30 + "b"), "a" * 1000, "a" * 1000)


def test_two_for_the_same_tool_are_refused_with_both_places() -> None:
    first = create_tool_config("home", "x", source="one")
    with pytest.raises(ConfigError, match=r"^two: home__x is configured already \(one\); keep one"):
        ToolConfigs([first, create_tool_config("home", "x", source="two")])


def test_configurations_over_others_win_and_leave_the_rest() -> None:
    theirs = ToolConfigs([create_tool_config("s", "a", source="them"), create_tool_config("s", "b")])
    ours = ToolConfigs([create_tool_config("s", "a", source="us")])
    both = ours.over(theirs)
    assert sorted(config.tool_id for config in both) == ["s__a", "s__b"]
    config = both.resolve("s", "a").config
    assert config is not None
    assert config.source == "us"
    assert (len(ours), len(theirs)) == (1, 2)


def test_of_two_equally_specific_patterns_the_one_over_the_other_wins() -> None:
    by_id, by_pair = create_id_config("home__*"), create_tool_config("home", "*", turn="stop")
    ours, theirs = ToolConfigs([by_id]), ToolConfigs([by_pair])
    assert ours.over(theirs).resolve("home", "x").config == by_id
    assert theirs.over(ours).resolve("home", "x").config == by_pair
    longer = ToolConfigs([create_id_config("home__x*")])
    assert ours.over(longer).resolve("home", "x").config == create_id_config("home__x*")


# --- which of many decides --------------------------------------------------------------------------

SERVER = ServerConfig(name="home", send_result_to_ai=True)
EXACT = create_tool_config("home", "play", description="exact")
PATTERN = create_tool_config("home", "*", description="pattern")
DYNAMIC = create_dynamic_config("home")
OVERRIDE = create_tool_config("home", "play", description="call")


@pytest.mark.requirement("CF-14")
@pytest.mark.requirement("CF-15")
def test_the_layers_are_asked_in_their_order() -> None:
    everything = [EXACT, PATTERN, DYNAMIC]
    for layer, configs, override, server in [
        (Layer.CALL, everything, OVERRIDE, SERVER),
        (Layer.EXACT, everything, None, SERVER),
        (Layer.PATTERN, everything[1:], None, SERVER),
        (Layer.SERVER, everything[2:], None, SERVER),
        (Layer.DYNAMIC, everything[2:], None, ServerConfig(name="home")),
        (Layer.NONE, [], None, None),
    ]:
        for order in (configs, configs[::-1]):
            found = ToolConfigs(order).resolve("home", "play", override=override, server_config=server)
            assert found.layer is layer
            assert decided(found) == [layer]
            assert [step.layer for step in found.looked_at] == list(Layer)


@pytest.mark.requirement("CF-15")
@pytest.mark.parametrize("static", [EXACT, PATTERN, create_id_config("*")])
def test_a_static_configuration_beats_a_dynamic_one(static: ToolConfig) -> None:
    found = ToolConfigs([DYNAMIC, static]).resolve("home", "play")
    assert (found.config, found.delivery) == (static, Delivery.USER)


@pytest.mark.requirement("CF-17")
def test_without_a_configuration_nothing_is_saved_and_the_classifier_decides() -> None:
    found = ToolConfigs().resolve("home", "play")
    assert (found.config, found.save_output, found.delivery) == (None, False, Delivery.PLAN)
    assert found.policy() == DEFAULT_POLICY
    assert dict(found.decided_by) == {}


def test_false_in_a_configuration_is_a_decision_and_differs_from_none() -> None:
    assert ToolConfigs([EXACT]).resolve("home", "play").delivery is Delivery.USER
    assert ToolConfigs([EXACT]).resolve("home", "other").delivery is Delivery.PLAN


@pytest.mark.parametrize(
    ("flag", "delivery"), [(True, Delivery.MODEL), (False, Delivery.USER), (None, Delivery.PLAN)]
)
def test_a_servers_own_setting_decides_who_gets_the_text_and_no_more(
    flag: bool | None, delivery: Delivery
) -> None:
    entry = ServerConfig(name="home", send_result_to_ai=flag)
    found = ToolConfigs().resolve("home", "play", server_config=entry)
    assert found.delivery is delivery
    assert not found.save_output
    assert dict(found.decided_by) == ({} if flag is None else {"send_result_to_ai": Layer.SERVER})


@pytest.mark.requirement("CF-18")
def test_for_a_listed_server_results_go_to_the_model() -> None:
    configs = ToolConfigs([create_dynamic_config("evm-mcp-server")])
    found = configs.resolve("evm-mcp-server", "get_balance")
    assert (found.layer, found.delivery, found.save_output) == (Layer.DYNAMIC, Delivery.MODEL, True)
    assert configs.resolve("evm-mcp-server-2", "get_balance").layer is Layer.NONE


def test_an_override_changes_what_it_gives_and_leaves_the_rest_as_configured() -> None:
    config = create_tool_config("home", "play", response_handler=answer, metadata={"a": 1}, stops={"text"})
    found = ToolConfigs([config]).resolve(
        "home", "play", override=ToolOverride(send_result_to_ai=True, turn="continue")
    )
    assert found.config == dataclasses.replace(config, send_result_to_ai=True, turn="continue")
    assert (found.layer, decided(found)) == (Layer.CALL, [Layer.CALL, Layer.EXACT])
    assert found.decided_by["send_result_to_ai"] is Layer.CALL
    assert found.decided_by["turn"] is Layer.CALL
    assert found.decided_by["response_handler"] is Layer.EXACT
    assert found.looked_at[0].said == "sets send_result_to_ai, turn; the rest is as below"


def test_an_override_can_take_the_handler_away_and_by_default_keeps_it() -> None:
    configs = ToolConfigs([create_tool_config("home", "play", response_handler=answer)])
    kept = configs.resolve("home", "play", override=ToolOverride(save_output=False)).config
    gone = configs.resolve("home", "play", override=ToolOverride(response_handler=None)).config
    assert kept is not None
    assert gone is not None
    assert (kept.response_handler, gone.response_handler) == (answer, None)


def test_an_override_over_nothing_leaves_to_the_classifier_what_it_does_not_say() -> None:
    found = ToolConfigs().resolve("home", "play", override=ToolOverride(save_output=True))
    assert (found.layer, found.delivery, found.save_output) == (Layer.CALL, Delivery.PLAN, True)
    assert decided(found) == [Layer.CALL]


def test_an_override_that_gives_nothing_decides_nothing() -> None:
    found = ToolConfigs([EXACT]).resolve("home", "play", override=ToolOverride())
    assert found == ToolConfigs([EXACT]).resolve("home", "play")


def test_an_override_of_the_wrong_type_is_refused() -> None:
    with pytest.raises(ConfigError, match="tool override: turn: expected one of continue, stop"):
        ToolOverride(turn="end")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="tool override: save_output: expected True or False, got str"):
        ToolOverride(save_output="no")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", "*", "a__b", "?", "x" * 5000, "\x1b[2J"])
def test_whatever_a_server_calls_its_tool_is_resolved(name: str) -> None:
    found = ToolConfigs([EXACT, DYNAMIC]).resolve(
        "home", name, server_config=SERVER, override=ToolOverride(turn="stop")
    )
    assert (found.tool, decided(found)) == (name, [Layer.CALL, Layer.SERVER])


# --- policy -----------------------------------------------------------------------------------------


def test_what_is_set_for_a_tool_changes_the_policy_and_the_rest_stays() -> None:
    base = Policy(sniff_links=False, trust_structured=True)
    config = create_tool_config("home", "play", trust_structured=False, turn="stop", stops={"text"})
    policy = ToolConfigs([config]).resolve("home", "play").policy(base)
    assert policy == Policy(sniff_links=False, trust_structured=False, turn="stop", stops=frozenset({"text"}))
    assert ToolConfigs([EXACT]).resolve("home", "play").policy(base) == base


@pytest.mark.parametrize(
    ("of_tool", "of_server", "expected", "layer"),
    [
        (None, None, True, None),
        (None, False, False, Layer.SERVER),
        (True, False, True, Layer.EXACT),
        (False, True, False, Layer.EXACT),
        (False, None, False, Layer.EXACT),
    ],
)
def test_a_servers_trust_holds_where_the_tools_own_says_nothing(
    of_tool: bool | None, of_server: bool | None, expected: bool, layer: Layer | None
) -> None:
    config = create_tool_config("home", "play", trust_structured=of_tool)
    entry = ServerConfig(name="home", trust_structured=of_server)
    found = ToolConfigs([config]).resolve("home", "play", server_config=entry)
    assert found.policy().trust_structured is expected
    assert found.decided_by.get("trust_structured") is layer
    assert found.layer is Layer.EXACT


def test_a_calls_trust_beats_the_servers() -> None:
    entry = ServerConfig(name="home", trust_structured=True)
    found = ToolConfigs().resolve(
        "home", "play", server_config=entry, override=ToolOverride(trust_structured=False)
    )
    assert not found.policy().trust_structured
    assert found.decided_by["trust_structured"] is Layer.CALL


# --- in words ---------------------------------------------------------------------------------------


@pytest.mark.requirement("CF-16")
def test_explain_tells_every_layer_and_marks_the_one_that_decided() -> None:
    configs = ToolConfigs([create_id_config("home__*", source="tools.toml"), DYNAMIC])
    assert configs.resolve("home", "play", server_config=SERVER).explain().splitlines() == [
        "  call    no override",
        "  exact   nothing for home__play",
        "> pattern home__* in tools.toml",
        "  server  the entry of home says send_result_to_ai = true",
        "  dynamic home is listed",
        "  none    no handler, nothing saved, the classifier decides who gets the text",
    ]


def test_metadata_that_holds_itself_is_a_slip_like_any_other() -> None:
    endless: dict[str, Any] = {}
    endless["x"] = [endless]
    with pytest.raises(ConfigError, match="metadata: expected at most 64 levels"):
        create_tool_config("a", "b", metadata=endless)
