"""Which types of structured response there are: the four, and those a program adds."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Final

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from playhead.content.findings import kind_of
from playhead.errors import ResponseError, UsageError
from playhead.results.responses.base import StructuredResponse
from playhead.results.responses.fields import COMMON, Fields
from playhead.results.responses.types import ActionResponse, AudioResponse, ContentResponse, ErrorResponse

Reader = Callable[[Mapping[str, object]], StructuredResponse]
"""Makes a response of an object whose `type` was looked at already. Raises `ResponseError`."""


def _read_action(raw: Mapping[str, object]) -> ActionResponse:
    found = Fields(raw, _ACTION)
    return ActionResponse(
        **found.common(_ACTION),
        action=found.text("action"),
        message=found.text("message"),
        status=found.text("status", ""),
        metadata=found.texts_or_none("metadata"),
        final_action=found.flag("final_action"),
        no_further_response=found.flag("no_further_response"),
        silence_llm=found.flag("silence_llm"),
        user_state=found.text("user_state", ""),
        instruction=found.text_or_none("instruction"),
    )


def _read_audio(raw: Mapping[str, object]) -> AudioResponse:
    found = Fields(raw, _AUDIO)
    return AudioResponse(
        **found.common(_AUDIO),
        data=found.text_or_none("data"),
        music_name=found.text("music_name"),
        action=found.text("action", ""),
        status=found.text("status", ""),
        metadata=found.texts_or_none("metadata"),
        final_action=found.flag("final_action"),
    )


def _read_content(raw: Mapping[str, object]) -> ContentResponse:
    found = Fields(raw, _CONTENT)
    return ContentResponse(**found.common(_CONTENT), data=found.json("data"), message=found.text("message"))


def _read_error(raw: Mapping[str, object]) -> ErrorResponse:
    found = Fields(raw, _ERROR)
    return ErrorResponse(
        **found.common(_ERROR),
        error=found.text("error"),
        error_code=found.text_or_none("error_code"),
        details=found.json("details"),
        suggestion=found.text_or_none("suggestion"),
    )


def _keys(cls: type[StructuredResponse]) -> frozenset[str]:
    return frozenset(each.name for each in fields(cls)) - {"extra"} | COMMON


_ACTION: Final = _keys(ActionResponse)
_AUDIO: Final = _keys(AudioResponse)
_CONTENT: Final = _keys(ContentResponse)
_ERROR: Final = _keys(ErrorResponse)


@dataclass(frozen=True, slots=True)
class ResponseRegistry:
    """The known types; immutable, so that one can be shared. `DEFAULT_REGISTRY` has the four."""

    _readers: Mapping[str, Reader]

    @property
    def types(self) -> frozenset[str]:
        """The wire names."""
        return frozenset(self._readers)

    def reader(self, type_name: str) -> Reader | None:
        """What reads this type; None for one that isn't known."""
        return self._readers.get(type_name)

    def with_type(self, cls: type[StructuredResponse]) -> ResponseRegistry:
        """A registry that also knows `cls`; this one stays as it is.

        Objects are read strictly by the class's annotations, as pydantic reads a dataclass from JSON: nested
        dataclasses, enums, lists and tuples work, "1" is no number. Make it once: it costs a millisecond.

        Raises:
            UsageError: `cls` is no dataclass over `StructuredResponse`, has no `type` or no `content()`,
                names a type that is taken, its keys are not in lower case, or an annotation can't be read
                (yours).
        """
        name = getattr(cls, "type", None)
        ours = StructuredResponse in getattr(cls, "__mro__", ())
        # A subclass without the decorator would pass `is_dataclass`: it inherits the table.
        if not ours or inspect.isabstract(cls) or "__dataclass_fields__" not in vars(cls):
            raise UsageError(f"expected a dataclass over StructuredResponse with content(), came {cls!r}")
        if not isinstance(name, str) or not name:
            raise UsageError(
                f'expected {cls.__name__} to name its type (type: ClassVar[str] = "…"), came {name!r}'
            )
        if name in self._readers:
            raise UsageError(f"the response type {name!r} of {cls.__name__} is taken; give it another name")
        if upper := sorted(key for key in _keys(cls) if key != key.lower()):
            raise UsageError(f"expected the fields of {cls.__name__} in lower case, came {', '.join(upper)}")
        return ResponseRegistry(MappingProxyType({**self._readers, name: _reader_of(cls)}))


def _reader_of(cls: type[StructuredResponse]) -> Reader:
    try:
        adapter = TypeAdapter(cls)
    except (PydanticUserError, NameError) as error:
        raise UsageError(f"the annotations of {cls.__name__} can't be read: {error}") from error
    known = _keys(cls)

    def read(raw: Mapping[str, object]) -> StructuredResponse:
        found = Fields(raw, known)
        own = {key: found.json(key) for key in known - COMMON if found.has(key)}
        # From JSON, because pydantic's strict mode takes a dict for a dataclass only there.
        text = json.dumps({**own, **found.common(known)})
        try:
            return adapter.validate_json(text, strict=True)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False)[0]
            path = "$" + "".join(
                f".{part}" if isinstance(part, str) else f"[{part}]" for part in first["loc"]
            )
            came = "nothing" if first["type"] == "missing" else kind_of(first["input"])
            raise ResponseError(
                f"{path} of a structured response of type {cls.type!r}: {first['msg']}, came {came}",
                code="INVALID_FIELD",
                path=path,
                expected=first["msg"],
                came=came,
            ) from error

    return read


DEFAULT_REGISTRY: Final = ResponseRegistry(
    MappingProxyType(
        {"action": _read_action, "audio": _read_audio, "content": _read_content, "error": _read_error}
    )
)
