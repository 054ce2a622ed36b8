"""The Rust core: a bounded positional byte pipe and the prefetch planner."""

from typing import Final, final

from typing_extensions import Buffer

__all__ = [
    "Pipe",
    "PipeStatistics",
    "Planner",
    "PlannerStatistics",
    "Request",
    "__version__",
    "decode_base64",
]

__version__: Final[str]

def decode_base64(text: str | Buffer, /) -> bytes: ...

@final
class Pipe: ...

@final
class PipeStatistics: ...

@final
class Planner: ...

@final
class PlannerStatistics: ...

@final
class Request: ...
