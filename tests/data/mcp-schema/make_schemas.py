"""Makes the files beside it anew, out of releases of the official Python SDK on PyPI.

The two newest revisions are the published `schema.json` as the SDK's source distribution carries it, byte for
byte. The SDK did not carry the older ones: those are what its types of that time accept, spelled by pydantic.
Run it with the project's Python: `python tests/data/mcp-schema/make_schemas.py`.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).parent
PUBLISHED = ("2.3.0", ("2025-11-25", "2026-07-28"))
FROM_TYPES = {"2024-11-05": "1.2.1", "2025-03-26": "1.9.4", "2025-06-18": "1.12.4"}
"""The last releases, or nearly, whose `LATEST_PROTOCOL_VERSION` was that revision."""


def download(version: str, folder: Path, *options: str) -> Path:
    command = (sys.executable, "-m", "pip", "download", "-q", "--no-deps", *options, f"mcp=={version}")
    subprocess.run(command, cwd=folder, check=True)
    return next(folder.glob(f"mcp-{version}*"))


def write_published(folder: Path) -> None:
    version, revisions = PUBLISHED
    with tarfile.open(download(version, folder, "--no-binary", "mcp")) as archive:
        for revision in revisions:
            member = archive.extractfile(f"mcp-{version}/schema/{revision}.json")
            assert member is not None
            (HERE / f"{revision}.json").write_bytes(member.read())


def write_from_types(revision: str, version: str, folder: Path) -> None:
    with zipfile.ZipFile(download(version, folder, "--only-binary", "mcp")) as archive:
        source = folder / f"types_{version.replace('.', '_')}.py"
        source.write_bytes(archive.read("mcp/types.py"))
    spec = importlib.util.spec_from_file_location(source.stem, source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    assert revision == module.LATEST_PROTOCOL_VERSION
    schema = module.CallToolResult.model_json_schema(by_alias=True, mode="validation")
    (HERE / f"{revision}.sdk.json").write_text(json.dumps(schema, indent=1, sort_keys=True) + "\n", "utf-8")


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_published(folder)
        for revision, version in FROM_TYPES.items():
            write_from_types(revision, version, folder)


if __name__ == "__main__":
    main()
