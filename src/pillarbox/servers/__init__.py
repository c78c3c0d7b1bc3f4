"""Start real servers on this machine, for tests, demo, benchmarks and `pillarbox dev`."""

from pillarbox.servers.broker import Login
from pillarbox.servers.errors import ServerFailed, ServerUnavailable
from pillarbox.servers.kafka import Kafka
from pillarbox.servers.locate import available
from pillarbox.servers.nats import Nats
from pillarbox.servers.pgbouncer import PgBouncer
from pillarbox.servers.postgres import Postgres
from pillarbox.servers.pulsar import Pulsar
from pillarbox.servers.rabbitmq import RabbitMq
from pillarbox.servers.redis import Redis
from pillarbox.servers.server import Server
from pillarbox.servers.tls import TlsFiles

__all__ = [
    "Kafka",
    "Login",
    "Nats",
    "PgBouncer",
    "Postgres",
    "Pulsar",
    "RabbitMq",
    "Redis",
    "Server",
    "ServerFailed",
    "ServerUnavailable",
    "TlsFiles",
    "available",
]
