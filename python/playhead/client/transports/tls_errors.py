"""Why a TLS connection did not come about, in words that name the key to set in the servers file."""

from __future__ import annotations

import ssl


def tls_reason(error: BaseException) -> str | None:
    """The reason, where `error` was caused by TLS: the HTTP libraries keep it only in the chain of causes."""
    found: BaseException | None = error
    while found is not None and not isinstance(found, ssl.SSLError):
        found = found.__cause__ or found.__context__
    match found:
        case None:
            return None
        case ssl.SSLCertVerificationError():
            return (
                f"its certificate is not to be trusted ({found.verify_message}): name the authority that"
                " signed it in tls.authorities, if you know it"
            )
        case _:
            said = (getattr(found, "reason", None) or type(found).__name__).replace("_", " ").lower()
            return (
                f"TLS failed ({said}): does the server speak https there, and does it want a client"
                " certificate (tls.certificate, tls.key)?"
            )
