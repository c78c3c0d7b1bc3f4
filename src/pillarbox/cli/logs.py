"""Log lines of the daemons: an event's name, then its fields, on standard error."""

import json
import logging
from datetime import UTC, datetime

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class FieldsFormatter(logging.Formatter):
    """Write `2026-11-16T03:00:00.123Z INFO projector_joined scope=all shards=64`."""

    def format(self, record: logging.LogRecord) -> str:
        """Write one line, and the traceback if there is one."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields = "".join(
            f" {name}={_shown(value)}" for name, value in vars(record).items() if name not in _OWN
        )
        line = f"{moment[:-6]}Z {record.levelname} {record.getMessage()}{fields}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def log_to_stderr(*, verbose: bool, quiet: bool) -> None:
    """Send the logs of this process to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(FieldsFormatter())
    level = logging.WARNING if quiet else logging.DEBUG if verbose else logging.INFO
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("pillarbox").setLevel(level)


def _shown(value: object) -> str:
    text = str(value)
    return json.dumps(text) if not text or any(c.isspace() or c in '"=' for c in text) else text
