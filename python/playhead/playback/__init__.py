"""From bytes to sound: what a stream is, its PCM, and where the PCM goes.

The way of a sound, one thread and one pipe at a time:

    media.open() -> BlockingReader -> DecoderSource -> a decoder   (the decoder's thread)
                                                          |  PCM pipe, about 0.4 s
                                                          v
                                                       PcmFeed -> a sink  (a device's callback, or a thread)

The player (trio) starts, watches and stops them; nothing on this way waits for it.
"""
