"""Guard against server-side request forgery: fetch URLs chosen by others from public addresses only.

A tool argument, a link in a result or a redirect must not make this process read the private network. So:

* URLs are `http` or `https`, without a user name, control characters, or a number that merely resolves to an
  address (`127.1`, `0x7f000001`): `check_url`;
* a name is resolved once, all of its addresses must be global, and the connection goes to the checked
  address, never to a second lookup (which a hostile name server could answer differently): `_GuardedBackend`,
  the only way for the guarded connection pool to open a socket;
* a redirect is a new request through the same transport, so each hop is checked again;
* an origin that the user allowed (exact scheme, host and port) is reached at any address.

The Host header and the TLS server name keep the name from the URL. Proxies from the environment are not used:
they would resolve the name in our place.
"""

from playhead.net_guard.addresses import Origin, check_url, parse_origins, why_not_global
from playhead.net_guard.client import GuardedTransport, guarded_client

__all__ = [
    "GuardedTransport",
    "Origin",
    "check_url",
    "guarded_client",
    "parse_origins",
    "why_not_global",
]
