"""The files with which a server speaks TLS."""

import ssl
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """A certificate and its key, with the authority whose certificates are trusted, all in PEM.

    With `asks_client` a server takes only clients that show a certificate of that authority.
    """

    certificate: Path
    key: Path
    authority: Path
    asks_client: bool = False

    def checking(self) -> ssl.SSLContext:
        """Return what a readiness check speaks with: it pins the certificate, however bad it is."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.load_cert_chain(self.certificate, self.key)
        return context

    def is_shown_by(self, connection: ssl.SSLSocket) -> bool:
        """Tell whether the other side shows this very certificate."""
        own = ssl.PEM_cert_to_DER_cert(self.certificate.read_text("ascii"))
        return connection.getpeercert(binary_form=True) == own
