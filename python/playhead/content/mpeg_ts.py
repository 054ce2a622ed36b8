"""MPEG transport stream (ISO 13818-1): the coded audio in it, without I/O.

    packets of 188 bytes ── PID 0 ──▶ the PMT's PID ──▶ the audio's PID ──▶ PES packets ──▶ ADTS or MPEG audio

HLS segments carry AAC in this form. `TransportStream` reads the first audio stream of the first program.
"""

from __future__ import annotations

from typing import Final

from playhead.errors import DecodeError, UnsupportedFormatError

PACKET_BYTES: Final = 188
SYNC: Final = 0x47
_AUDIO_TYPES: Final = frozenset({0x03, 0x04, 0x0F})
"""Stream types of MPEG-1 and MPEG-2 audio, and of AAC with ADTS headers."""
_UNSUPPORTED_TYPES: Final = {0x11: "AAC in LATM", 0x81: "AC-3", 0x87: "E-AC-3", 0xCF: "AAC with SAMPLE-AES"}
_PES_HEADER_BYTES: Final = 9
"""The fixed part of a PES header with the length of the rest."""


class TransportStream:
    """Extracts the audio of a transport stream, in whatever pieces it arrives."""

    def __init__(self) -> None:
        self._incomplete_packet = b""
        self._map_pid: int | None = None
        self._audio_pid: int | None = None
        self._counter: int | None = None
        """The continuity counter of the newest audio packet."""
        self._pes_head: bytearray | None = None
        """The beginning of a PES packet, until its header is complete; None within its data."""

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes, and return the audio that they complete.

        Raises `DecodeError` if the packets lose their alignment, and `UnsupportedFormatError` for audio that
        no decoder takes.
        """
        data = self._incomplete_packet + data
        audio = bytearray()
        end = len(data) - len(data) % PACKET_BYTES
        for at in range(0, end, PACKET_BYTES):
            self._read_packet(data[at : at + PACKET_BYTES], audio)
        self._incomplete_packet = data[end:]
        return bytes(audio)

    def _read_packet(self, packet: bytes, audio: bytearray) -> None:
        if packet[0] != SYNC:
            raise DecodeError(
                f"expected a packet of an MPEG transport stream (0x47), got {packet[0]:#04x}: it is damaged"
            )
        pid = (packet[1] & 0x1F) << 8 | packet[2]
        begins, counter = bool(packet[1] & 0x40), packet[3] & 0x0F
        has_adaptation_field, has_payload = packet[3] & 0x20, packet[3] & 0x10
        if not has_payload:
            return
        payload = packet[5 + packet[4] if has_adaptation_field else 4 :]
        if pid == 0 and begins:
            self._map_pid = _program_map_pid(_section(payload)) or self._map_pid
        elif pid == self._map_pid and begins:
            self._audio_pid = _audio_stream_pid(_section(payload), self._audio_pid)
        elif pid == self._audio_pid and counter != self._counter:  # the same counter: a repeated packet
            self._counter = counter
            self._read_payload(payload, audio, begins=begins)

    def _read_payload(self, payload: bytes, audio: bytearray, *, begins: bool) -> None:
        if begins:
            self._pes_head = bytearray()
        if self._pes_head is None:
            audio += payload
            return
        self._pes_head += payload
        if len(self._pes_head) < _PES_HEADER_BYTES:
            return
        header_bytes = _PES_HEADER_BYTES + self._pes_head[8]
        if len(self._pes_head) >= header_bytes:
            audio += self._pes_head[header_bytes:]
            self._pes_head = None


def _section(payload: bytes) -> bytes:
    """Return the section of a table, without the pointer before it and the checksum after it."""
    at = 1 + payload[0] if payload else 0
    length = int.from_bytes(payload[at + 1 : at + 3], "big") & 0xFFF
    return payload[at : at + 3 + max(0, length - 4)]


def _program_map_pid(section: bytes) -> int | None:
    """Return the PID of the first program's map (PMT)."""
    for at in range(8, len(section) - 3, 4):
        if section[at : at + 2] != b"\0\0":  # the network's own table
            return int.from_bytes(section[at + 2 : at + 4], "big") & 0x1FFF
    return None


def _audio_stream_pid(section: bytes, known: int | None) -> int | None:
    """Return the PID of the first audio stream in a program's map, or `known` if it has none. Raises
    `UnsupportedFormatError` if no decoder takes its audio."""
    at = 12 + (int.from_bytes(section[10:12], "big") & 0xFFF)
    others: list[str] = []
    while at + 5 <= len(section):
        kind = section[at]
        if kind in _AUDIO_TYPES:
            return int.from_bytes(section[at + 1 : at + 3], "big") & 0x1FFF
        if kind in _UNSUPPORTED_TYPES:
            others.append(_UNSUPPORTED_TYPES[kind])
        at += 5 + (int.from_bytes(section[at + 3 : at + 5], "big") & 0xFFF)
    if others:
        raise UnsupportedFormatError(
            f"expected AAC (ADTS) or MPEG audio in an MPEG transport stream, got {', '.join(others)}"
        )
    return known
