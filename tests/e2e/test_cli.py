"""Commands as people type them, their output, and their exit codes."""

from __future__ import annotations

import hashlib
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import miniaudio
import pytest

from playhead.cli.app import run
from tests.e2e.command import (
    AUDIO_SERVER,
    HANG_SECONDS,
    PLAYHEAD,
    environment,
    playhead,
    playhead_process,
    shell,
    start,
)
from tests.servers.audio_tools import AUDIO_TOOLS
from tests.servers.scripted_stdio import scripted_stdio
from tests.servers.shared import SharedServers
from tests.servers.wave import write_wave

MUSIC = Path(__file__).parents[2] / "python" / "playhead" / "servers" / "audio" / "music"
DATA = Path(__file__).parents[1] / "data"


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


# --- what works -------------------------------------------------------------------------------------


def test_the_demo_plays_to_the_end_and_compares_what_was_heard() -> None:
    done = playhead_process("demo", "--sink", "null", "--json")
    report = done.json
    assert done.code == 0, done.stderr
    assert report["same_as_local_decode"] is True
    assert report["position_seconds"] >= 60
    assert report["pages"] > 1
    assert report["in_flight_max"] >= 3
    assert report["underruns"] == 0
    assert report["error"] is None


def test_the_demo_on_a_device_speaks_of_no_other_sink(tmp_path: Path) -> None:
    done = playhead("demo", "--sink", f"wave:{tmp_path / 'x.wav'}")
    assert done.code == 0, done.stderr
    assert "underruns" in done.stdout.decode()
    assert "null sink" not in done.stdout.decode() + done.stderr


def test_tools_lists_names_arguments_and_on_request_schemas() -> None:
    done = playhead_process("tools", AUDIO_SERVER, "-v")
    assert done.code == 0
    text = done.stdout.decode()
    assert "musicPlayer" in text
    assert "(query)" in text
    assert '"maximum": 100' in text


def test_call_shows_the_answer_as_text(shared: SharedServers) -> None:
    done = playhead_process("call", shared.audio, "set_volume", "volume=40")
    assert (done.code, done.stdout.decode().strip()) == (
        0,
        "Volume set to 40 (remembered, no mixer is used).",
    )


def test_call_with_args_and_json_gives_the_result_as_it_came(shared: SharedServers) -> None:
    done = playhead("call", shared.audio, "musicPlayer", "--args", '{"query": "first"}', "--json")
    link = done.json["result"]["content"][0]
    assert (link["type"], link["name"]) == ("resource_link", "First Light")


def test_read_saves_what_a_tool_links_to_and_reports_it(tmp_path: Path, shared: SharedServers) -> None:
    saved = tmp_path / "music.mp3"
    done = playhead_process("read", shared.audio, "musicPlayer", "query=first", "-o", saved, "--json")
    assert done.code == 0, done.stderr
    original = MUSIC / "first-light.mp3"
    assert done.json["sha256"] == sha256(saved) == sha256(original)
    assert done.json["bytes"] == original.stat().st_size
    assert [path.name for path in tmp_path.iterdir()] == ["music.mp3"]


def test_read_to_a_dash_is_read_to_stdout(tmp_path: Path, shared: SharedServers) -> None:
    done = playhead("read", shared.audio, "musicPlayer", "query=first", "-o", "-", cwd=tmp_path)
    assert done.code == 0, done.stderr
    assert done.stdout == (MUSIC / "first-light.mp3").read_bytes()
    assert list(tmp_path.iterdir()) == []


def test_read_writes_to_a_pipe_where_no_file_is_named(shared: SharedServers) -> None:
    done = playhead("read", shared.audio, "musicPlayer", "query=first")
    assert done.code == 0
    assert done.stdout == (MUSIC / "first-light.mp3").read_bytes()


def test_play_of_a_tool_into_a_wave_file(tmp_path: Path, shared: SharedServers) -> None:
    saved = tmp_path / "music.wav"
    music = ("musicPlayer", "query=lift")
    done = playhead_process("play", shared.audio, *music, "--sink", f"wave:{saved}", "--json")
    assert done.code == 0, done.stderr
    assert done.json["underruns"] == 0
    assert saved.stat().st_size > 100_000


def test_play_writes_bare_samples_to_stdout_and_nothing_else(tmp_path: Path) -> None:
    done = playhead_process("play", DATA / "gapless.mp3", "--sink", "pcm:-")
    assert done.code == 0, done.stderr
    assert done.stdout == miniaudio.mp3_read_file_s16(str(DATA / "gapless.mp3")).samples.tobytes()
    saved = tmp_path / "x.pcm"
    assert playhead("play", DATA / "gapless.mp3", "--sink", f"pcm:{saved}", "--json").code == 0
    assert saved.read_bytes() == done.stdout


def test_play_starts_at_a_time_and_converts(tmp_path: Path) -> None:
    whole, tail, narrow = (tmp_path / name for name in ("whole.pcm", "tail.pcm", "narrow.pcm"))
    song = DATA / "gapless.mp3"
    assert playhead("play", song, "--sink", f"pcm:{whole}").code == 0
    assert playhead("play", song, "--sink", f"pcm:{tail}", "--start", "0:01").code == 0
    size, rest = whole.stat().st_size, tail.read_bytes()
    assert len(rest) == size - 44_100 * 4
    fade_bytes = 441 * 4  # 10 ms
    assert whole.read_bytes().endswith(rest[fade_bytes:])
    done = playhead("play", song, "--sink", f"pcm:{narrow}", "--rate", "16000", "--channels", "1")
    assert (done.code, narrow.stat().st_size) == (0, size * 16_000 // 44_100 // 2)


@pytest.mark.parametrize(
    ("rate", "bound"),
    [("5", "at least 8000"), ("7999", "at least 8000"), ("384001", "at most 384000"), ("CD", "an integer")],
)
def test_a_rate_that_no_device_has_is_a_usage_error(rate: str, bound: str) -> None:
    done = playhead("play", DATA / "chord.wav", "--sink", "null", "--rate", rate)
    assert (done.code, done.stdout) == (2, b"")
    assert f"'--rate': expected {bound}, got '{rate}'" in done.stderr


def test_a_start_that_cannot_be_is_an_error(tmp_path: Path) -> None:
    (page := tmp_path / "page.mp3").write_text("<html>not music</html>")
    done = playhead("play", page, "--sink", "null", "--start", "3")
    assert done.code == 1
    assert "is over" not in done.stderr, "the reason is that it is not music"
    done = playhead("play", DATA / "chord.wav", "--sink", "null", "--start", "soon")
    assert (done.code, "--start: expected a time such as 90 or 1:30" in done.stderr) == (2, True)
    done = playhead("play", DATA / "chord.wav", "--sink", "null", "--start", "9")
    assert (done.code, done.stdout) == (1, b"")
    assert "--start: expected a time before the end of 'chord' at 2.0 s, got 9 s" in done.stderr


@pytest.mark.parametrize("name", ["chord.wav", "chord.flac", "chord.ogg", "gapless.mp3"])
def test_play_of_a_file_that_is_cut_short_says_so(name: str, tmp_path: Path) -> None:
    data = (DATA / name).read_bytes()
    (path := tmp_path / name).write_bytes(data[: len(data) // 2])
    done = playhead("play", path, "--sink", "null", "--json")
    assert (done.code, done.json["truncated"], done.json["error"]) == (1, True, None)
    assert f"{path.stem}: ended at {done.json['position_seconds']:.1f}" in done.stderr


@pytest.mark.parametrize(("sink", "frame_bytes"), [("frames", {1920}), ("frames+opus", None)])
def test_play_writes_frames_after_their_lengths(
    sink: str, frame_bytes: set[int] | None, tmp_path: Path
) -> None:
    music, saved = tmp_path / "short.wav", tmp_path / "x.frames"
    write_wave(music, bytes(8000), rate_hz=16_000)
    assert playhead("play", music, "--sink", f"{sink}:{saved}", "--json").code == 0
    data, sizes = saved.read_bytes(), []
    while data:
        sizes.append(int.from_bytes(data[:4], "big"))
        data = data[4 + sizes[-1] :]
    assert len(sizes) == 5, "0.25 s in frames of 60 ms"
    assert frame_bytes is None or {*sizes} == frame_bytes


def test_a_server_by_its_name_in_the_servers_file(tmp_path: Path) -> None:
    words = shlex.split(AUDIO_SERVER)
    (tmp_path / "mcp.json").write_text(
        f'{{"mcpServers": {{"home": {{"command": {words[0]!r}, "args": {words[1:]!r}}}}}}}'.replace("'", '"')
    )
    done = playhead("tools", "home", "--trust", "--json", cwd=tmp_path)
    assert done.code == 0, done.stderr
    assert [tool["name"] for tool in done.json["tools"]] == AUDIO_TOOLS


# --- what a person gets wrong -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["play", "no-such-file.mp3"], "no such file"),
        (["play", "."], "a directory with audio files"),
        (["play"], "expected URLs, files, directories or a server"),
        (
            ["read", AUDIO_SERVER, "musicPlayer", "-o", "x", "--page-size", "1GiB"],
            "--page-size: expected 1 to",
        ),
        (["call", AUDIO_SERVER, "set_volume", "volume"], "key=value"),
        (["call", AUDIO_SERVER, "set_volume", "a=1", "--args", "{}"], "got both"),
        (["call", AUDIO_SERVER, "set_volume", "--args", "[1]"], "JSON object"),
        (["read", AUDIO_SERVER, "musicPlayer", "-o", "x", "--page-size", "lots"], "--page-size"),
        (["read", AUDIO_SERVER, "musicPlayer", "-o", "x", "--strategy", "guess"], "uri-template"),
        (["read", AUDIO_SERVER, "musicPlayer", "query=first", "-o", "/dev/null/x"], "/dev/null/x"),
        (["read", AUDIO_SERVER, "musicPlayer", "-o", "/"], "directory"),
        (["read", AUDIO_SERVER, "musicPlayer", "--json"], "-o FILE"),
        (
            ["play", AUDIO_SERVER, "musicPlayer", "--sink", "radio"],
            "device, null, wave:FILE, pcm:FILE, frames:FILE or frames+opus:FILE",
        ),
        (["play", "x.mp3", "--sink", "pcm:-", "--json"], "needs stdout, which has the object of --json"),
        (["call", AUDIO_SERVER, "musicPlayer", "--sink", "pcm:-"], "needs stdout, which has the result"),
        (["play", AUDIO_SERVER, "musicPlayer", "--sink", "frames:/dev/null/x"], "/dev/null/x"),
        (
            ["play", AUDIO_SERVER, "musicPlayer", "query=first", "--sink", "wave:/dev/null/x.wav"],
            "/dev/null/x.wav",
        ),
        (["serve", "audio", "--transport", "ws", "--token-env", "NOT_SET"], "NOT_SET"),
        (["serve", "template", "--token-env", "NOT_SET"], "NOT_SET"),
        (["serve", "audio", "--transport", "ws", "--web-origin", "app.example"], "https://app.example.org"),
        (["serve", "audio", "--tls-certificate", "/dev/null/x.pem"], "/dev/null/x.pem"),
        (["serve", "audio", "--tls-key", "key.pem"], "--tls-certificate"),
        (["serve", "audio", "--library", "/dev/null/music"], "/dev/null/music"),
        (["tools", "x", "--config", "/dev/null/x.json"], "/dev/null/x.json"),
        (["tools", "unbalanced 'quote"], "quot"),
        (["tools", "ws://127.0.0.1:99999/mcp"], "port from 1 to 65535"),
        (["tools", "http://127.0.0.1:99999/mcp"], "port from 1 to 65535"),
        (["tools", "http://"], "expected a host"),
        (["frobnicate"], "frobnicate"),
        (["tools"], "SERVER"),
        (["read", AUDIO_SERVER, "musicPlayer", "--in-flight", "0"], "in-flight"),
    ],
)
def test_a_mistake_is_named_and_exits_with_2(
    arguments: list[str],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    code = run(arguments)
    said = capfd.readouterr().err
    assert says.lower() in " ".join(said.lower().split())
    assert "internal error" not in said
    assert code == 2


def test_a_file_that_holds_no_sound_exits_with_1() -> None:
    done = playhead("play", DATA / "make_audio.py", "--sink", "null")
    assert "is text, not audio" in done.stderr
    assert done.code == 1


@pytest.mark.parametrize(
    ("server", "says"),
    [
        ("no-such-command --flag", "no such command"),
        ("home", "--config"),
        ("http://127.0.0.1:9/mcp", "check that the server is running"),
        ("ws://127.0.0.1:1/mcp", "ws://127.0.0.1:1/mcp"),
        (shlex.join([sys.executable, "-c", "raise SystemExit('the licence has run out')"]), "licence"),
        (shlex.join([sys.executable, "-c", "print('hello')"]), "ended"),
    ],
)
def test_a_server_that_is_not_there_exits_with_3(server: str, says: str) -> None:
    done = playhead("tools", server)
    assert says in done.stderr
    assert done.code == 3


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["call", "SERVER", "set_volume", "volume=400"], "1 to 100"),
        (["call", "SERVER", "no_such_tool"], "no_such_tool"),
        (["play", "SERVER", "musicPlayer", "query=zzz", "--sink", "null"], "First Light"),
        (["play", "SERVER", "set_volume", "volume=4", "--sink", "null"], "expected audio"),
        (["read", "SERVER", "resource://nothing-here", "-o", "x"], "nothing-here"),
    ],
)
def test_a_tool_or_resource_that_fails_exits_with_1(
    arguments: list[str], says: str, tmp_path: Path, shared: SharedServers
) -> None:
    words = [shared.audio if word == "SERVER" else word for word in arguments]
    done = playhead(*words, cwd=tmp_path)
    assert says in done.stderr
    assert done.code == 1
    assert list(tmp_path.iterdir()) == []


PAGES_THEN_SILENCE = """
while True:
    read = take("resources/read")
    start, end = (read["params"]["arguments"][name] for name in ("start", "end"))
    if start < 30000:
        blob = base64.b64encode(bytes(i % 251 for i in range(start, end))).decode()
        say(id=read["id"], result={"contents": [{"uri": "x:", "blob": blob}]})
"""


def test_a_deadline_ends_a_read_with_its_figures_and_without_half_a_file(tmp_path: Path) -> None:
    server = shlex.join(scripted_stdio(PAGES_THEN_SILENCE))
    saved = tmp_path / "saved"
    done = playhead("read", server, "x:", "--arg", "a=1", "-o", saved, "--deadline", "2", "--json")
    assert done.code == 1
    assert done.json["error"]["type"] == "DeadlineError"
    assert "`playhead read` to finish within 2 s (--deadline)" in done.stderr
    assert done.json["bytes"] > 0
    assert done.json["pages"] >= 1
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_hangs_is_given_up_after_the_timeout() -> None:
    done = playhead(
        "tools", shlex.join([sys.executable, "-c", "import sys; sys.stdin.read()"]), "--timeout", "0.5"
    )
    assert "did not finish the handshake in 0.5 s" in done.stderr
    assert done.code == 3


def test_a_cap_that_is_hit_in_the_first_bytes_is_what_play_says(shared: SharedServers) -> None:
    done = playhead("play", shared.audio, "musicPlayer", "query=first", "--sink", "null", "--max-bytes", "1")
    assert "--max-bytes" in done.stderr
    assert done.code == 1


def test_what_the_libraries_log_stays_off_the_terminal(tmp_path: Path) -> None:
    # As a program of its own: pytest's handlers would take the record.
    program = (
        "import logging, sys; from playhead.cli.app import run; code = run(['--version']);"
        " logging.getLogger('mcp.client').error('\\x1b]0;title'); sys.exit(code)"
    )
    done = shell(f"{shlex.quote(sys.executable)} -c {shlex.quote(program)}", cwd=tmp_path)
    assert done.code == 0
    assert done.stderr == ""


# --- what a shell does to the streams ----------------------------------------------------------------

SLOW = pytest.mark.slow("starts a new interpreter, and some of them a server")


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("playhead --help | true; exit ${PIPESTATUS[0]}", 1),
        ("playhead tools SERVER --json >&-", 0),
        pytest.param("playhead tools SERVER | true; exit ${PIPESTATUS[0]}", 1, marks=SLOW),
        pytest.param("playhead read SERVER musicPlayer query=first >&-", 0, marks=SLOW),
        pytest.param("playhead tools STDIO <&- >&- 2>&-", 0, marks=SLOW),
        pytest.param("playhead tools nosuch 2>&-", 3, marks=SLOW),
    ],
)
def test_closed_streams_change_nothing_but_what_is_shown(line: str, code: int, shared: SharedServers) -> None:
    line = line.replace("SERVER", shared.audio).replace("STDIO", shlex.quote(AUDIO_SERVER))
    assert shell(line).code == code


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="no /dev/full here")
@pytest.mark.parametrize(
    "line",
    [
        "tools SERVER",
        *(
            pytest.param(line, marks=SLOW)
            for line in ("tools SERVER --json", "read SERVER musicPlayer query=first", "--help")
        ),
    ],
)
def test_a_full_disk_behind_stdout_is_named_and_exits_with_1(line: str, shared: SharedServers) -> None:
    done = shell(f"playhead {line.replace('SERVER', shared.audio)} >/dev/full")
    assert "stdout: No space left on device" in done.stderr
    assert done.code == 1


@SLOW
def test_an_exit_code_is_kept_where_stderr_is_full() -> None:
    assert shell("playhead tools nosuch 2>/dev/full").code == 3


@SLOW
def test_an_ascii_terminal_is_not_sent_what_it_cannot_show() -> None:
    done = shell("LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 playhead demo --sink null")
    assert done.code == 0, done.stderr
    assert done.stdout.isascii()


def test_a_pipe_with_a_name_is_not_replaced_by_the_file(tmp_path: Path, shared: SharedServers) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    done = playhead("read", shared.audio, "musicPlayer", "query=first", "-o", fifo)
    assert "expected a file" in done.stderr
    assert done.code == 2
    assert fifo.is_fifo()


# --- Ctrl-C -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", ["playhead.errors", "playhead.limits", "playhead.cli", "playhead.extras"])
@pytest.mark.parametrize("way", ["python -m playhead", "playhead"])
def test_interrupted_by_its_first_imports_it_prints_no_traceback(
    module: str, way: str, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, path, target=None):\n"
        f"        if name == {module!r}:\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupting())\n"
    )
    (script := tmp_path / "playhead").write_text(
        "import sys\nfrom playhead.cli import main\nsys.exit(main())\n"
    )
    command = PLAYHEAD if way.startswith("python") else (sys.executable, str(script))
    variables = environment() | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run([*command, "--help"], env=variables, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("command", ["play", "read"])
def test_interrupted_in_the_middle_it_leaves_nothing_behind(
    command: str, number: signal.Signals, tmp_path: Path
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    output = tmp_path / "output"
    output.mkdir()
    target = ["--sink", f"wave:{output / 'x.wav'}"] if command == "play" else ["-o", str(output / "x.wav")]
    server = shlex.join([sys.executable, "-S", "-m", "tests.servers.hanging", str(fifo)])
    process = start([command, server, "resource://hanging", *target])
    server_process = int(fifo.read_text().split()[0])

    process.send_signal(number)
    _, stderr = process.communicate(timeout=HANG_SECONDS)

    assert process.returncode == 128 + number
    assert b"Traceback" not in stderr
    assert list(output.iterdir()) == []
    with pytest.raises(ProcessLookupError):
        os.kill(server_process, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers")
@pytest.mark.parametrize("leave", ["", "setsid "], ids=["in the group", "in a session of its own"])
def test_the_command_ends_every_descendant_of_its_servers(leave: str, tmp_path: Path) -> None:
    script = (
        f'{leave}sh -c "trap : TERM; echo \\$\\$ > {tmp_path}/left; while :; do sleep 600; done" & exec "$@"'
    )
    server = ["/bin/sh", "-c", script, "sh", *PLAYHEAD, "serve", "audio", "--mixer", "memory"]
    done = playhead_process("tools", shlex.join(server))
    assert (done.code, b"musicPlayer" in done.stdout) == (0, True)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "left").read_text()), 0)
