"""URLs of the web that a result gives in other ways than a link, and that may lead to audio.

| where | taken |
|---|---|
| text that is only a URL | it |
| text with `<audio src="…">`, or `<source src="…">` in an `<audio>` | each of them |
| `structuredContent` | the values of `downloadUrl`, `httpUrl`, `audio_url`, `url`, in any spelling |

Pure: the client asks the origin for its type. `url` names any page, so it is taken only where it describes
the result, not the items of a list; and a URL whose suffix names another type is not asked about.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

from playhead.content.audio import is_audio
from playhead.results.kinds import BlockView

URL_CHARS: Final = 2_048
"""Longer ones are refused by many servers and hold data rather than an address."""
DEPTH: Final = 6
"""Levels of `structuredContent` that are searched; wrappers add one or two."""
VALUES: Final = 1_000
"""Values of it that are looked at: an answer with more is a table."""

_KEYS: Final = frozenset({"downloadurl", "httpurl", "audiourl"})
_ANY_URL: Final = "url"
_TITLES: Final = ("title", "name")
_URL: Final = re.compile(r"https?://[^\s<>\"']+", re.IGNORECASE)
_AUDIO_TAG: Final = re.compile(r"<audio\b", re.IGNORECASE)
_SOURCE: Final = re.compile(
    r"""<(?:audio|source)\b[^<>]{0,1000}?\ssrc\s{0,9}=\s{0,9}(["'])([^"'<>]{1,2048})\1""", re.IGNORECASE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebCandidate:
    """A URL that may lead to audio."""

    index: int
    """Index of the block, from 0; -1 for `structuredContent`."""
    url: str
    title: str


def web_candidates(views: Sequence[BlockView | None], structured: object) -> tuple[WebCandidate, ...]:
    """Return the candidates in order, each URL once. A URL that the result also links is none."""
    taken = {view.uri for view in views if view is not None and view.kind == "link"}
    found: list[WebCandidate] = []
    for index, view in enumerate(views):
        if view is not None and view.kind == "text" and view.uri is None:
            found += (WebCandidate(index=index, url=url, title="") for url in _in_text(view.text))
    found += (WebCandidate(index=-1, url=url, title=title) for url, title in _in_values(structured))
    unique: list[WebCandidate] = []
    for each in found:
        if each.url not in taken:
            taken.add(each.url)
            unique.append(each)
    return tuple(unique)


def title_of(url: str) -> str:
    """Name a resource after the last segment of its URL's path."""
    parts = urlsplit(url)
    return unquote(parts.path.rstrip("/").rpartition("/")[2]) or parts.netloc


def _in_text(text: str) -> Iterator[str]:
    bare = text.strip()
    if _is_url(bare):
        if is_audio(None, bare) is not False:
            yield bare
    elif "<" in text and _AUDIO_TAG.search(text):
        for found in _SOURCE.finditer(text):
            url = html.unescape(found[2].strip())
            if _is_url(url):
                yield url


def _in_values(structured: object) -> Iterator[tuple[str, str]]:
    """Search breadth-first, so that what describes the whole result comes first."""
    level: list[tuple[object, bool]] = [(structured, False)]
    seen = 0
    for _ in range(DEPTH):
        deeper: list[tuple[object, bool]] = []
        for value, is_item in level:
            seen += 1
            if seen > VALUES:
                return
            if isinstance(value, Mapping):
                yield from _in_object(value, is_item=is_item)
                deeper += ((each, is_item) for each in value.values() if isinstance(each, Mapping | list))
            elif isinstance(value, list):
                deeper += ((each, True) for each in value[:VALUES] if isinstance(each, Mapping | list))
        level = deeper


def _in_object(value: Mapping[str, object], *, is_item: bool) -> Iterator[tuple[str, str]]:
    names = (value.get(key) for key in _TITLES)
    title = next((name for name in names if isinstance(name, str)), "")
    mime_type = value.get("mimeType")
    if isinstance(mime_type, str) and is_audio(mime_type, None) is False:
        return
    for key, url in value.items():
        name = key.lower().replace("_", "").replace("-", "")
        if not isinstance(url, str) or not _is_url(url):
            continue
        is_page = name == _ANY_URL and not is_item and is_audio(None, url) is not False
        if name in _KEYS or is_page:
            yield url, title


def _is_url(text: str) -> bool:
    if len(text) > URL_CHARS or _URL.fullmatch(text) is None:
        return False
    try:
        return bool(urlsplit(text).netloc)
    except ValueError:
        return False
