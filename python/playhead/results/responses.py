"""Structured responses."""

from __future__ import annotations

from typing import Protocol


class StructuredResponse(Protocol):
    type: str
