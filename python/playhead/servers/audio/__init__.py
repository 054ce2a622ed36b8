"""The example audio server: finds music, links to it, and reads it in ranges."""

from playhead.servers.audio.serve import AudioServerOptions, open_audio_server, serve

__all__ = ["AudioServerOptions", "open_audio_server", "serve"]
