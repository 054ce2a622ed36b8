"""Live streams from the web: radio and HLS, as forms of a stream.

`forms` tells by the first answer for a URL which of the two it is, if any.
"""
