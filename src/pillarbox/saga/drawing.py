"""Drawings of sagas, as text and as Mermaid: what a definition says, and how far an instance is."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from pillarbox.event.domain import event_type_of
from pillarbox.saga.definition import Definition, Saga, Step
from pillarbox.saga.machine import Part

_UNITS: Final = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))


@dataclass(frozen=True, slots=True)
class Drawing:
    """A saga that has begun: its steps in order, and what the halves of them have come to.

    `outcomes` has an entry for each half that was begun; one that is awaited has none as its value.
    """

    title: str
    state: str
    steps: Sequence[str]
    outcomes: Mapping[tuple[str, str], str | None] = field(default_factory=dict)

    def text(self) -> str:
        """Draw it for a terminal."""
        width = max(map(len, self.steps))
        lines = [f"{self.title}: {self.state}"]
        for number, name in enumerate(self.steps, start=1):
            halves = [
                f"{part} {self._shown(name, part)}" for part in Part if self._begun(name, part)
            ]
            told = ", ".join(halves) or "not begun"
            lines.append(f"  {number}. {name:<{width}}  {told}")
        return "\n".join(lines)

    def mermaid(self) -> str:
        """Draw it as a flowchart, in the order in which things happened."""
        done = [(f"s{n}", name, Part.DO) for n, name in enumerate(self.steps)]
        undone = [(f"u{n}", name, Part.UNDO) for n, name in enumerate(self.steps)][::-1]
        begun = [item for item in (*done, *undone) if self._begun(item[1], item[2])]
        lines = ["flowchart LR"]
        for node, name, part in begun:
            words = name if part is Part.DO else f"undo {name}"
            lines.append(f"    {node}[{_quoted(f'{words}: {self._shown(name, part)}')}]")
        lines.append(f"    state([{_quoted(self.state)}])")
        path = " --> ".join([*(node for node, _, _ in begun), "state"])
        return "\n".join([*lines, f"    {path}"])

    def _begun(self, name: str, part: Part) -> bool:
        return (name, part.value) in self.outcomes

    def _shown(self, name: str, part: Part) -> str:
        return self.outcomes[name, part.value] or "awaited"


def as_text(kind: type[Saga]) -> str:
    """Draw a definition for a terminal."""
    definition = kind.definition
    width = max(map(len, definition.step_names))
    lines = [
        f"{definition.name} {definition.version}, started by {event_type_of(definition.start)}"
    ]
    for number, step in enumerate(definition.steps, start=1):
        told = "; ".join(_told(step))
        lines.append(f"  {number}. {step.name:<{width}}  {told}")
    return "\n".join(lines)


def as_mermaid(kind: type[Saga]) -> str:
    """Draw a definition as a flowchart: the way forward, and the ways back."""
    definition = kind.definition
    start = _quoted(event_type_of(definition.start))
    return "\n".join(
        ["flowchart TD", f"    start([{start}]) --> s0", *_nodes(definition), *_edges(definition)]
    )


def _nodes(definition: Definition) -> Iterator[str]:
    for number, step in enumerate(definition.steps):
        yield f"    s{number}[{_quoted(step.name)}]"
        if step.undo is not None:
            yield f"    u{number}[{_quoted(f'undo {step.name}')}]"
    yield "    completed([COMPLETED])"
    yield "    compensated([COMPENSATED])"


def _edges(definition: Definition) -> Iterator[str]:
    last = len(definition.steps) - 1
    for number, step in enumerate(definition.steps):
        onward = "completed" if number == last else f"s{number + 1}"
        yield f"    s{number} -->|{_quoted(_named(step.ok))}| {onward}"
        if step.fail:
            yield f"    s{number} -->|{_quoted(_named(step.fail))}| {_back(definition, number - 1)}"
        if step.timeout is not None:
            yield f"    s{number} -->|{_quoted(_late(step))}| {_back(definition, number)}"
        if step.undo is not None:
            arrow = f"-->|{_quoted(_named(step.undone))}|" if step.undone else "-->"
            yield f"    u{number} {arrow} {_back(definition, number - 1)}"
        if step.undone:
            yield f"    u{number} -->|no reply| stuck([STUCK])"


def _back(definition: Definition, number: int) -> str:
    """Return where the way back goes on, from a step's number downwards."""
    for found in range(number, -1, -1):
        if definition.steps[found].undo is not None:
            return f"u{found}"
    return "compensated"


def _told(step: Step) -> Iterator[str]:
    yield f"ok {_named(step.ok)}"
    if step.fail:
        yield f"fail {_named(step.fail)}"
    if step.timeout is not None:
        yield _late(step)
    if step.undo is not None:
        yield f"undone by {_named(step.undone)}" if step.undone else "can be undone"


def _late(step: Step) -> str:
    again = f", sent {step.retries + 1} times" if step.retries else ""
    return f"{_time(step.timeout)}{again}"


def _time(wait: timedelta | None) -> str:
    seconds = 0.0 if wait is None else wait.total_seconds()
    size, unit = next(((s, u) for s, u in _UNITS if seconds >= s), _UNITS[-1])
    return f"within {seconds / size:g} {unit}"


def _named(kinds: Sequence[type]) -> str:
    return " or ".join(map(event_type_of, kinds))


def _quoted(words: str) -> str:
    return '"' + words.replace('"', "#quot;") + '"'
