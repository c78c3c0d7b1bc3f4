"""Text of strangers: what a broker hands over is bytes, and nothing says that they are UTF-8."""


def wire_text(raw: bytes) -> str:
    """Return bytes as text that a database can keep; bytes that are no text show their numbers.

    Different bytes stay different: two ids must not become one.
    """
    return raw.decode(errors="backslashreplace")
