"""What all commands share: examples first, help with typos, errors as one line."""

import difflib
from collections.abc import Sequence
from typing import Any

import click
from sqlalchemy.exc import DBAPIError, OperationalError

from pillarbox.errors import PillarboxError

FAILED = 1
DRIFT = 3


class ExamplesFirst(click.Command):
    """A command whose help begins with lines that can be copied."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, then the description."""
        super().format_help_text(ctx, formatter)
        write_examples(formatter, self.examples)


class Group(click.Group):
    """Commands whose errors are one line, and whose typos are met with a suggestion."""

    command_class = ExamplesFirst

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the description, then the examples, before options and commands."""
        super().format_help_text(ctx, formatter)
        write_examples(formatter, self.examples)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or name the one that was probably meant."""
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            close = difflib.get_close_matches(name, self.list_commands(ctx), n=1, cutoff=0.5)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            ctx.fail(f"No such command {name!r}.{hint}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Turn errors that a person can act on into one line and exit code 1."""
        try:
            return super().invoke(ctx)
        except PillarboxError as error:
            problem = f"[{error.code}] {error}"
        except DBAPIError as error:
            problem = database_problem(error)
        click.echo(f"Error: {problem}", err=True)
        raise click.exceptions.Exit(FAILED)


def write_examples(formatter: click.HelpFormatter, examples: Sequence[str]) -> None:
    """Write example lines as they are typed."""
    if not examples:
        return
    with formatter.section("Examples"):
        for example in examples:
            formatter.write(f"{'':>{formatter.current_indent}}{example}\n")


def database_problem(error: DBAPIError) -> str:
    """Say what the database said, in one line and without the statement."""
    lines = [line.strip() for line in str(error.orig).splitlines() if line.strip()]
    said = lines[0] if lines else type(error.orig).__name__
    if isinstance(error, OperationalError) and error.connection_invalidated is False:
        return f"the database does not answer as it should: {said}"
    return f"the database refused: {said}"
