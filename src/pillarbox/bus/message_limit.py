"""How large a message a broker takes, beside what is recorded."""


def small_limit(what: str, limit: int, most: int) -> list[str]:
    """Say that larger events are recorded than the other side takes."""
    if limit >= most:
        return []
    recorded = f"and events up to {most:,} are recorded: a larger one is refused and stops its key"
    return [f"{what} takes messages up to {limit:,} bytes, {recorded}"]
