"""Brokers that name their own address to clients, so that a proxy in front must be that address."""

from typing import Final

from pillarbox.servers import Kafka, Pulsar
from pillarbox.servers.ports import LOOPBACK

_SCRAM: Final = "listener.name.scram"
_SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"


class LinedKafka(Kafka):
    """A Kafka that knows rights, and that clients may also reach through a proxy, or with a password.

    Without a rule for a topic everybody may do everything there.
    """

    port_names = (*Kafka.port_names, "line", "proxy", "scram")  # type: ignore[assignment]  # more

    @property
    def line_port(self) -> int:
        """The port that a proxy forwards to."""
        return self._ports["line"]

    @property
    def proxy_port(self) -> int:
        """The port that a proxy must have: whoever comes by the line is sent there."""
        return self._ports["proxy"]

    @property
    def scram(self) -> str:
        """The `bootstrap.servers` of clients that log in by SCRAM."""
        return f"{LOOPBACK}:{self._ports['scram']}"

    def _properties(self) -> dict[str, str | float]:
        made = super()._properties()
        return {
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,LINE:PLAINTEXT,SCRAM:SASL_PLAINTEXT"
            ),
            f"{_SCRAM}.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            f"{_SCRAM}.scram-sha-512.sasl.jaas.config": f"{_SCRAM_MODULE} required;",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
            **made,
            "listeners": (
                f"{made['listeners']},LINE://{LOOPBACK}:{self.line_port},SCRAM://{self.scram}"
            ),
            "advertised.listeners": (
                f"{made['advertised.listeners']},LINE://{LOOPBACK}:{self.proxy_port},"
                f"SCRAM://{self.scram}"
            ),
        }


class LinedPulsar(Pulsar):
    """A Pulsar that clients with the option `listener_name` "line" may reach through a proxy."""

    port_names = (*Pulsar.port_names, "proxy")  # type: ignore[assignment]  # more

    @property
    def proxy_port(self) -> int:
        """The port that a proxy must have: whoever asks for the line is sent there."""
        return self._ports["proxy"]

    def _properties(self) -> dict[str, str | float]:
        straight = f"straight:pulsar://{LOOPBACK}:{self.port}"
        line = f"line:pulsar://{LOOPBACK}:{self.proxy_port}"
        return {
            "advertisedListeners": f"{straight},{line}",
            "internalListenerName": "straight",
            **super()._properties(),
        }
