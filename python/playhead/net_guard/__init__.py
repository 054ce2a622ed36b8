"""Which addresses may be reached when somebody else chose the URL (server-side request forgery).

A tool argument, a link in a result or a redirect must not make this process read the private network. So:

* only `http` and `https`, no user name, no control characters, no number that merely resolves to an address
  (`127.1`, `0x7f000001`): `check_url`;
* a name is resolved once, every address it resolves to must be global, and the connection goes to the
  address that was checked, never to a second look-up (which a hostile name server could answer
  differently): `_GuardedBackend`, the only way by which the guarded connection pool opens a socket;
* a redirect is a new request through the same transport, so each hop is checked again;
* an origin that the user allowed (scheme, host and port, exactly) is reached whatever its address.

The Host header and the TLS server name keep the name from the URL. Proxies from the environment are not
used: they would do the look-up in our place.
"""

from playhead.net_guard.addresses import why_not_global
from playhead.net_guard.client import GuardedTransport, guarded_client
from playhead.net_guard.urls import Origin, check_url, parse_origins

__all__ = [
    "GuardedTransport",
    "Origin",
    "check_url",
    "guarded_client",
    "parse_origins",
    "why_not_global",
]
