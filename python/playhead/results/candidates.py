"""Audio that a result holds or names elsewhere than in a block of its own: one row per form.

| row | found in |
|---|---|
| `base64` | text or a string of JSON: 1,000 characters or more that decode to a whole header of audio |
| `url` | text that is only a URL; a string of JSON whose suffix, key or MIME type beside it names audio |
| `prose` | a URL in at most 2,000 characters of text, whose path has the suffix of audio or a playlist |
| `path` | an absolute path or a `file:` URI with such a suffix: in any of these places, or a link |
| `playlist` | a link or embedded resource with a playlist's MIME type or suffix; text that begins as one |

JSON is `structuredContent`, or text that is an object or a list. Keys decide the order of the candidates, and
which URL without a suffix is one; the bytes decide what plays. Pure: `classify` plays what is in the result
itself, the client asks for the first bytes of the other candidates, and classifies again with its verdicts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Final, Literal, NamedTuple
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from playhead._core import check_base64, decode_base64
from playhead.content.audio import (
    AUDIO_SUFFIXES,
    HEADER_BYTES,
    AudioFormat,
    format_of_mime,
    has_signature,
    header_format,
    is_audio,
    mime_of,
    sniff,
    split_mime,
)
from playhead.content.formats import Base64Text, decoded_bytes, has_long_run, head_of_base64, string_of
from playhead.content.playlists import SUFFIXES, has_playlist_head, is_playlist
from playhead.errors import Base64Error
from playhead.limits import Limits
from playhead.results.kinds import BlockView
from playhead.results.responses.registry import parse

Row = Literal["base64", "url", "prose", "path", "playlist"]

BASE64_CHARS: Final = 1_000
"""Shorter strings are keys, hashes and thumbnails, or audio of less than a tenth of a second."""
PROSE_CHARS: Final = 2_000
"""Longer texts are documents."""
ADDRESS_CHARS: Final = 2_048
"""Longer ones are refused by many servers and hold data rather than an address."""
DEPTH: Final = 6
"""Levels of JSON that are searched; wrappers add one or two."""
VALUES: Final = 1_000
"""Values of it that are looked at: an answer with more is a table."""

_AUDIO_KEYS: Final = re.compile(
    r"(?:source|stream|song|music|speech|tts)?"
    r"(?:audio|stream|download|play|http|song|music|mp3|wav|voice|enclosure)"
    r"(?:file|stream)?(?:ur[il]|link|src)?s?|urlresolved"
)
"""Keys of the URL of audio or of a file, without `_`: `audio_url`, `downloadUrl`, `stream_audio_url`;
`url_resolved` of radio directories and `enclosureUrl` of podcasts."""
_ANY_KEYS: Final = frozenset({"url", "file", "fileurl", "path", "src"})
"""Keys of any address: one without a suffix is asked only if the values beside it are those of audio."""
_TYPE_KEYS: Final = frozenset(
    {"mimetype", "contenttype", "mediatype", "type", "format", "encoding", "audioformat"}
)
_RATE_KEYS: Final = frozenset({"samplerate", "sampleratehz", "samplingrate", "rate", "ratehz"})
_OF_AUDIO: Final = frozenset({"codec", "bitrate", *_RATE_KEYS})
_TITLES: Final = ("title", "name", "filename", "file_name")
OTHER_SIGNATURES: Final = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"RIFF", b"PK\x03\x04", b"%PDF", b"\x1f\x8b")
"""First bytes of pictures, documents and archives, and of RIFF, which is audio only if `sniff` says so."""

_SUFFIX: Final = rf"(?:{'|'.join(re.escape(each) for each in (*AUDIO_SUFFIXES, *SUFFIXES))})"
_NAMED: Final = re.compile(rf"{_SUFFIX}(?![A-Za-z0-9])", re.IGNORECASE)
_URL: Final = re.compile(r"https?://[^\s<>\"']+", re.IGNORECASE)
_IN_PROSE: Final = re.compile(
    r"(?:\[([^\[\]\n]{0,200})\]\()?"  # the title of a Markdown link
    rf"(https?://[!#-&(-;=?-_a-~]+|(?:(?<=: )|(?<=: [\"'`]))/(?!/)[^\n\"'`<>|]{{1,1000}}?{_SUFFIX}(?![\w/-])"
    rf"|(?:file://|(?<![\w:/.~%=-])(?<!=[\"']))/(?!/)[^\s\"'`<>|]{{1,1000}}?{_SUFFIX}(?![\w/-]))",
    re.IGNORECASE | re.ASCII,
)
_PATH: Final = re.compile(rf"(?:file:(?://(?:localhost)?)?)?/(?!/)[^\n\0]{{1,2000}}{_SUFFIX}", re.IGNORECASE)
_BASE64: Final = re.compile(
    r"(data:audio/[\w.+-]{1,60}(?:;[^,;\s]{1,60}){0,4},)?"
    r"((?<![A-Za-z0-9+/])[A-Za-z0-9+/]{60,}+(?:\s{1,9}[A-Za-z0-9+/]{60,}+)*+"
    r"(?:[ \t]{0,9}\r?\n[ \t]{0,9}[A-Za-z0-9+/]{1,76}+(?==|[\s\"']*\Z|[ \t\"']*\r?\n))?={0,2})"
)
_ALL_BASE64: Final = re.compile(r"[A-Za-z0-9+/\s]++={0,2}\s*")


class Permission(NamedTuple):
    """A setting of the server that allows a candidate, and the value to add to it."""

    setting: str
    """`allow_origins` or `allow_paths`."""
    value: str


class AddressedAudio(NamedTuple):
    """Audio at a URL or in a local file."""

    address: str
    title: str
    mime_type: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The outcome of asking a candidate for its first bytes."""

    reason: str
    items: tuple[AddressedAudio, ...] = ()
    """The audio to play: the candidate itself, or the entries of a playlist."""
    permission: Permission | None = None
    """Set if the candidate was not asked, because it is not allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Something in a result that may be audio."""

    index: int
    """Index of the block, from 0; -1 for `structuredContent`."""
    row: Row
    place: str
    """A JSON path: `$.structuredContent.track.url`."""
    address: str
    """A URL, or a path or `file:` URI; empty for what the result itself holds."""
    title: str = ""
    playlist: bytes | None = field(default=None, repr=False)
    """The playlist that the result holds; None for one to be read, and for other rows."""
    verdict: Verdict | None = None
    """None if it was not asked."""

    @property
    def key(self) -> str:
        """The key of its verdict: its address, else its place."""
        return self.address or self.place


class InlineAudio(NamedTuple):
    """Audio in the middle of text or of JSON."""

    base64: str
    mime_type: str | None
    title: str


@dataclass(slots=True, kw_only=True)
class CandidateFinder:
    """Find the candidates of one result, and take the audio out of its texts.

    `describe` returns the line that takes the place of audio in its text.
    """

    limits: Limits
    describe: Callable[[InlineAudio], str]
    taken: set[str]
    """Addresses that the result links, and what was found."""
    payloads: Sequence[Base64Text]
    """The base64 of its blocks."""
    candidates: dict[int, list[Candidate]] = field(default_factory=dict)
    """The candidates found, by the index of the block."""
    inline: dict[int, list[InlineAudio]] = field(default_factory=dict)
    """The audio found in text and JSON, by the index of the block."""
    _values: int = 0
    _prose_chars: int = 50 * PROSE_CHARS
    """The characters of prose that are still searched: ten thousand texts would take minutes."""
    _objects: set[int] = field(default_factory=set)
    """The objects of JSON that gave a URL."""

    def in_text(self, index: int, text: str) -> str:
        """Search a text block. Return its text, in which audio is replaced."""
        at, bare, self._values = _Place(index, f"$.content[{index}].text"), text.strip(), 0
        if has_playlist_head(text):
            self._note_playlist(text, at)
            return text
        may_hold_audio = "http" in bare or _NAMED.search(bare) is not None or has_long_run(bare)
        if bare[:1] in ("{", "[") and may_hold_audio and is_parsed(bare, self.limits):
            try:
                value = parse(bare)
            except ValueError:
                value = None
            if value is not None:
                replaced = self._in_value(value, at)
                return text if replaced is value else json.dumps(replaced, ensure_ascii=False)
        if is_url(bare):
            if is_audio(None, bare) is not False or is_playlist(None, bare):
                self._add("url", bare, at)
            return text
        return self._in_prose(text, at)

    def in_link(self, index: int, link: BlockView) -> None:
        """Look at a link to a playlist, or to a local file, which the server may not be able to read."""
        uri, at = link.uri or "", _Place(index, f"$.content[{index}].uri")
        if uri[:5].lower() == "data:":
            header, _, text = uri[5:].partition(",")
            if is_playlist(link.mime_type or header, ""):
                data = unquote_to_bytes(text)
                with suppress(Base64Error):
                    if header.lower().endswith(";base64"):
                        data = decode_base64(data.decode("latin-1"))
                    self._note("playlist", at, "", link.title, playlist=data)
        elif is_playlist(link.mime_type, uri):
            self._note("playlist", at, uri, link.title)
        elif uri[:5].lower() == "file:" and _is_named(uri):
            self._note("path", at, uri, link.title)

    def in_embedded(self, index: int, resource: BlockView) -> None:
        """Look at an embedded resource that may be a playlist."""
        path, uri = f"$.content[{index}].resource", resource.uri or ""
        is_named = is_playlist(resource.mime_type, uri)
        if resource.data is None:
            if is_named or has_playlist_head(resource.text):
                self._note_playlist(resource.text, _Place(index, f"{path}.text"), uri)
        elif is_named and (resource.size_bytes or 0) <= self.limits.playlist_bytes:
            with suppress(Base64Error):
                self._note(
                    "playlist", _Place(index, f"{path}.blob"), uri, playlist=decode_base64(resource.data)
                )

    def _note_playlist(self, text: str, at: _Place, uri: str = "") -> None:
        data = text[: self.limits.playlist_bytes + 1].encode(errors="replace")
        self._note("playlist", at, uri, playlist=data)

    def in_structured(self, structured: object) -> object:
        """Search `structuredContent`. Return it, or a copy in which audio is replaced."""
        self._values = 0
        return self._in_value(structured, _Place(-1, "$.structuredContent"))

    # --- JSON --------------------------------------------------------------------------------------------

    def _in_value(self, value: object, at: _Place) -> object:
        self._values += 1
        if self._values > VALUES or len(at.keys) > DEPTH:
            return value
        match value:
            case str():
                return self._in_string(value, at)
            case dict():
                inner = [(key, value[key], at.inside(key, value)) for key in sorted(value, key=_turn(value))]
                changed = {key: new for key, old, to in inner if (new := self._in_value(old, to)) is not old}
                return {**value, **changed} if changed else value
            case list():
                items = [self._in_value(item, at.item(number)) for number, item in enumerate(value[:VALUES])]
                same = all(new is old for new, old in zip(items, value, strict=False))
                return value if same else [*items, *value[VALUES:]]
        return value

    def _in_string(self, text: str, at: _Place) -> str:
        bare = text.strip() if len(text) <= ADDRESS_CHARS else ""
        if is_url(bare):
            is_only_one = id(at.beside) not in self._objects  # others tell the same audio in another way
            if _is_named(bare) or (is_only_one and is_audio(None, bare) is None and at.may_be_audio()):
                self._objects.add(id(at.beside))
                self._add("url", bare, at)
        elif _PATH.fullmatch(bare):
            self._add("path", bare, at)
        elif len(text) >= BASE64_CHARS and (audio := inline_audio(text, at.beside)) is not None:
            return self._take(audio, at)
        elif has_playlist_head(text):
            self._note_playlist(text, at)
        else:
            return self._in_prose(text, at)
        return text

    # --- text --------------------------------------------------------------------------------------------

    def _in_prose(self, text: str, at: _Place) -> str:
        if len(text) >= BASE64_CHARS and has_long_run(text):
            replaced = _BASE64.sub(lambda match: self._replaced(match, at), text)
            text = text if replaced == text else replaced.strip()
        if len(text) <= min(PROSE_CHARS, self._prose_chars) and _NAMED.search(text) is not None:
            self._prose_chars -= len(text)
            if _PATH.fullmatch(bare := text.strip()):
                self._add("path", bare, at)
                return text
            for match in _IN_PROSE.finditer(text):
                address = match[2]
                if address[0] in "hH":
                    address = _without_punctuation(address).replace("&amp;", "&")
                    if _is_named(address) and is_url(address):
                        self._add("prose", address, at, title=match[1] or "")
                else:
                    self._add("path", address, at, title=match[1] or "")
        return text

    def _replaced(self, match: re.Match[str], at: _Place) -> str:
        if len(match[0]) < BASE64_CHARS or (audio := inline_audio(match[0], {})) is None:
            return match[0]
        return self._take(audio, at, is_whole=match[0].strip() == match.string.strip())

    def _take(self, audio: InlineAudio, at: _Place, *, is_whole: bool = False) -> str:
        base64, size = audio.base64, len(audio.base64)
        blocks = (it for it in self.payloads if len(it) == size)
        is_block = any((it if isinstance(it, str) else string_of(it)) == base64 for it in blocks)
        if base64 not in self.taken and not is_block:
            self.taken.add(base64)
            self.inline.setdefault(at.index, []).append(audio)
            verdict = Verdict(reason=f"{audio.mime_type}, {decoded_bytes(base64)} bytes")
            self._note("base64", at, "", audio.title, verdict=verdict)
        return "" if is_whole else self.describe(audio)

    def _add(self, row: Row, address: str, at: _Place, *, title: str = "") -> None:
        if address not in self.taken:
            self.taken.add(address)
            self._note(row, at, address, title or _title_in(at.beside) or title_of(address))

    def _note(
        self,
        row: Row,
        at: _Place,
        address: str,
        title: str = "",
        *,
        playlist: bytes | None = None,
        verdict: Verdict | None = None,
    ) -> None:
        candidate = Candidate(
            index=at.index,
            row=row,
            place=at.path,
            address=address,
            title=title,
            playlist=playlist,
            verdict=verdict,
        )
        self.candidates.setdefault(at.index, []).append(candidate)


@dataclass(frozen=True, slots=True)
class _Place:
    """A value in a result: its path, and the values beside it."""

    index: int
    path: str
    keys: tuple[str, ...] = ()
    """The keys on the way; the number of an item counts, but has no key of its own."""
    beside: Mapping[str, object] = field(default_factory=dict)

    def inside(self, key: str, beside: Mapping[str, object]) -> _Place:
        return replace(self, path=f"{self.path}.{key[:60]}", keys=(*self.keys, key), beside=beside)

    def item(self, number: int) -> _Place:
        key = self.keys[-1] if self.keys else ""
        return replace(self, path=f"{self.path}[{number}]", keys=(*self.keys, key))

    def may_be_audio(self) -> bool:
        """Return True if a URL without a suffix may lead to audio, by its key and the values beside it."""
        name = _plain(self.keys[-1]) if self.keys else ""
        labels = [is_audio(kind, None) for kind in _types(self.beside) if "/" in kind]
        if False in labels or not (_AUDIO_KEYS.fullmatch(name) or name in _ANY_KEYS):
            return False
        is_known = True in labels or any(_plain(key) in _OF_AUDIO for key in self.beside)
        return is_known or _AUDIO_KEYS.fullmatch(name) is not None


def _turn(value: Mapping[str, object]) -> Callable[[str], int]:
    """Sort the keys of an object: those of audio, of any address, the others, and what holds more values."""

    def turn(key: str) -> int:
        name = _plain(key)
        if isinstance(value[key], dict | list):
            return 3
        return 0 if _AUDIO_KEYS.fullmatch(name) else 1 if name in _ANY_KEYS else 2

    return turn


def _plain(key: str) -> str:
    return key[:60].lower().replace("_", "").replace("-", "")


def _title_in(beside: Mapping[str, object]) -> str:
    return next((name for key in _TITLES if isinstance(name := beside.get(key), str)), "")


def _types(beside: Mapping[str, object]) -> Iterator[str]:
    for key, value in beside.items():
        if isinstance(value, str) and len(value) <= 200 and _plain(key) in _TYPE_KEYS:
            yield value


# --- base64 ----------------------------------------------------------------------------------------------


def inline_audio(text: str, beside: Mapping[str, object]) -> InlineAudio | None:
    """Return the audio that a string is, or None. `beside` are the values of its object, which may give the
    type or the rate of raw PCM."""
    types = [*_types(beside)]
    if text[:11].lower() == "data:audio/":
        header, _, text = text[5:].partition(",")
        types.insert(0, header.removesuffix(";base64"))
    if not _ALL_BASE64.fullmatch(text):
        return None
    data = "".join(text.split())
    head = head_of_base64(data, HEADER_BYTES)
    if len(data) < BASE64_CHARS or not head:
        return None
    is_labelled = any(is_audio(kind, None) for kind in types)
    mime_type = mime_of(header_format(head, decoded_bytes(data), labelled=is_labelled))
    if (
        mime_type is None
        and not head.startswith(OTHER_SIGNATURES)
        and not (sniff(head) and has_signature(head))
    ):
        mime_type = _pcm_type(types, beside)
    try:
        check_base64(data)
    except Base64Error:
        return None
    return None if mime_type is None else InlineAudio(data, mime_type, _title_in(beside))


def _pcm_type(types: Sequence[str], beside: Mapping[str, object]) -> str | None:
    """Return the MIME type of raw PCM, if a type or a rate beside the data says that they are."""
    numbers = {_plain(key): value for key, value in beside.items() if isinstance(value, int) and value > 0}
    kind = next((kind for kind in types if format_of_mime(kind) is AudioFormat.PCM), "")
    if not kind and any(
        is_audio(it, None) or it.lower().startswith(("f32", "float", "pcm_f")) for it in types
    ):
        return None  # of another type, and damaged
    name, parameters = split_mime(kind or "audio/pcm")
    rate = parameters.get("rate") or next((numbers[key] for key in numbers if key in _RATE_KEYS), None)
    channels = parameters.get("channels") or numbers.get("channels", 1)
    return None if rate is None else f"{name};rate={rate};channels={channels}"


# --- addresses -------------------------------------------------------------------------------------------


def is_parsed(text: str, limits: Limits) -> bool:
    """Return False for JSON beyond the limits of a message, in which the whole text was a single value."""
    if len(text) > limits.message_bytes:
        return False
    return len(text) <= limits.json_values or sum(map(text.count, ",[{")) <= limits.json_values


def title_of(address: str) -> str:
    """Name audio after the last segment of its path."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return address
    return unquote(PurePosixPath(parts.path).name) or parts.netloc


def local_path(address: str) -> str:
    """Return the path of a path or `file:` URI."""
    if address[:5].lower() != "file:":
        return address
    return unquote(re.sub(r"^//(?:localhost)?(?=/)", "", address[5:], flags=re.IGNORECASE))


def is_url(text: str) -> bool:
    """Return True for text that is a URL of the web, and nothing else."""
    if len(text) > ADDRESS_CHARS or _URL.fullmatch(text) is None:
        return False
    try:
        return bool(urlsplit(text).netloc)
    except ValueError:
        return False


def _is_named(url: str) -> bool:
    return is_audio(None, url) is True or is_playlist(None, url)


def _without_punctuation(url: str) -> str:
    while url and (url[-1] in ".,;:!?*_~]}|" or (url[-1] == ")" and url.count(")") > url.count("("))):
        url = url[:-1]
    return url
