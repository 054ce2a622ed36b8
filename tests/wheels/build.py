"""Build the wheels for Linux: `python -m tests.wheels.build [TARGET ...]`, all of them by default.

zig is compiler and linker for every architecture and C library. zopfli compresses the wheels again. They are
written to dist/, and a table of file, size and the tag that `auditwheel show` finds is printed. Status 1 if a
wheel was not built or a tag is not the one asked for.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.wheels.recompress import recompress

DIST = Path(__file__).parents[2] / "dist"
TARGETS = {
    "x86_64-unknown-linux-gnu": "manylinux2014",
    "aarch64-unknown-linux-gnu": "manylinux2014",
    "armv7-unknown-linux-gnueabihf": "manylinux2014",
    "x86_64-unknown-linux-musl": "musllinux_1_2",
    "aarch64-unknown-linux-musl": "musllinux_1_2",
    "armv7-unknown-linux-musleabihf": "musllinux_1_2",
}
"""The oldest platform that each wheel runs on: glibc 2.17, musl 1.2."""

UNWINDER = (
    "Backtrace DeleteException GetDataRelBase GetIP GetIPInfo GetLanguageSpecificData GetRegionStart"
    " GetTextRelBase RaiseException Resume SetGR SetIP"
)
"""Functions of the system's libgcc_s that Rust calls: `_Unwind_Backtrace` and so on."""

BINARIES = Path(sys.executable).parent


def build(target: str, platform: str) -> Path | None:
    """Return the wheel, or None if it could not be built; the reason is printed."""
    add = subprocess.run(["rustup", "target", "add", target], capture_output=True, text=True, check=False)
    if add.returncode:
        reason = next((line for line in add.stderr.splitlines() if line.startswith("error")), "rustup failed")
        print(f"{target}: {reason}", file=sys.stderr)
        return None
    out = DIST / target
    shutil.rmtree(out, ignore_errors=True)
    command = [str(BINARIES / "maturin"), "build", "--zig", "--target", target, "--compatibility", platform]
    command += ["--target-dir", "target/wheels", "--out", str(out)]
    if target.endswith("-linux-gnu"):  # 32-bit ARM unwinds by other functions
        command += ["--", "-C", f"link-arg={libgcc(target)}", "-C", "link-arg=-Wl,--hash-style=gnu"]
    if subprocess.run(command, check=False).returncode:
        return None
    (wheel,) = out.glob("*.whl")
    recompress(wheel)
    wheel = wheel.replace(DIST / wheel.name)
    out.rmdir()
    return wheel


def libgcc(target: str) -> Path:
    """Return a stand-in for the system's libgcc_s.so.1 to link with; the wheels of pydantic-core need it too.

    Without it zig links its own unwinder into the extension: 10 KB of the wheel.
    """
    library = Path("build", "wheels", target, "libgcc_s.so.1").absolute()
    library.parent.mkdir(parents=True, exist_ok=True)
    source = library.with_name("unwinder.c")
    source.write_text("".join(f"void _Unwind_{name}(void) {{}}\n" for name in UNWINDER.split()))
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", target.replace("-unknown-", "-")]
    shape = ["-shared", "-nostdlib", f"-Wl,-soname,{library.name}", "-o", str(library), str(source)]
    subprocess.run([*zig, *shape], check=True)
    return library


def audited(wheel: Path) -> str:
    """Return the oldest platform that auditwheel finds for it, by the versions of the symbols it uses.

    auditwheel reads the musl of its own system, so a musl wheel has maturin's audit alone.
    """
    if "musllinux" in wheel.name:
        return "audited by maturin"
    shown = subprocess.run(
        [BINARIES / "auditwheel", "show", wheel], capture_output=True, text=True, check=False
    )
    if shown.returncode:
        return (shown.stderr or shown.stdout).strip().splitlines()[-1]
    text = " ".join(shown.stdout.split())
    found = re.search(r'platform tag: "(\w+)"', text)
    return found[1] if found else "no tag"


def main(targets: list[str]) -> int:
    unknown = set(targets) - set(TARGETS)
    if unknown:
        print(f"expected some of {', '.join(TARGETS)}; got {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    failed = 0
    rows = []
    for target in targets or TARGETS:
        platform = TARGETS[target]
        wheel = build(target, platform)
        if wheel is None:
            failed = 1
            rows.append((target, "not built", ""))
            continue
        tag = audited(wheel)
        failed |= platform == "manylinux2014" and not tag.startswith("manylinux_2_17_")
        rows.append((wheel.name, f"{wheel.stat().st_size:,} bytes", tag))
    for row in rows:
        print("{:<82} {:>16}  {}".format(*row))
    return failed


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
