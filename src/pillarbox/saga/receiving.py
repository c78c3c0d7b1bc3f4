"""What a saga's consumer does with its messages: start events start sagas, replies move them."""

from uuid import UUID

from pillarbox.consumer.context import Context
from pillarbox.consumer.conversion import Misfit
from pillarbox.consumer.signals import Park
from pillarbox.errors import SagaVersionMissing
from pillarbox.event.envelope import MessageEnvelope
from pillarbox.event.ids import IdMaker
from pillarbox.saga.carrying import Carrying
from pillarbox.saga.definition import Definition
from pillarbox.saga.machine import Move, Place, Verdict, answered, begin
from pillarbox.saga.reading import read_event
from pillarbox.saga.rows import Instance


class Receiving:
    """The handlers of a saga's consumer: each runs in the transaction that holds the inbox's row."""

    def __init__(self, carrying: Carrying, new_id: IdMaker) -> None:
        self._carrying, self._new_id = carrying, new_id

    async def start(self, event: MessageEnvelope, ctx: Context) -> None:
        """Start a saga with the newest version, once for each start event."""
        del event  # the context has it as it came, in its own schema version
        carrying, envelope = self._carrying, ctx.envelope
        definition = carrying.versions[max(carrying.versions)]
        self._check(definition.start, envelope)
        move = begin(definition.plan)
        held = Instance(
            ctx.tenant_id,
            self._new_id(),
            definition.name,
            definition.version,
            envelope,
            definition.step_names,
            move.progress,
        )
        if await carrying.store.add(ctx.session, held):
            await carrying.carry_out(ctx, held, move)
            ctx.told.append(lambda: carrying.observer.started(definition.name))
        else:
            ctx.told.append(lambda: carrying.observer.repeated_start(definition.name))

    async def reply(self, event: MessageEnvelope, ctx: Context) -> None:
        """Match a reply to the step of a saga: by correlation, by cause, and by its type."""
        del event
        carrying, envelope = self._carrying, ctx.envelope
        saga_id = _as_id(envelope.headers.get("correlationid"))
        store, name = carrying.store, carrying.store.name
        held = saga_id and await store.find(ctx.session, ctx.tenant_id, saga_id)
        if not held:
            other = saga_id and await store.is_other(ctx.session, ctx.tenant_id, saga_id)
            if not other:
                ctx.told.append(lambda: carrying.observer.unknown(name))
            return
        if held.wish is not None:
            await carrying.wish(ctx, held)
        place = held.place_of(envelope.headers.get("causationid"))
        move = self._move(held, place, envelope)
        if place is not None and move.verdict is Verdict.TAKEN:
            held.steps[place].reply = envelope
            await carrying.carry_out(ctx, held, move)
        else:
            await store.stray(ctx.session, held, envelope, move.verdict, place)
        ctx.told.append(lambda: carrying.observer.replied(name, move.verdict))

    async def other(self, event: MessageEnvelope, ctx: Context) -> None:
        """Take no notice of what is no reply here, unless a version that is missing may want it.

        Otherwise a process without that version would take its replies off the broker, unread.
        """
        del event
        saga_id, carrying = _as_id(ctx.envelope.headers.get("correlationid")), self._carrying
        if saga_id is None:
            return
        version = await carrying.store.open_version(ctx.session, ctx.tenant_id, saga_id)
        if version is not None and version not in carrying.versions:
            known = sorted(carrying.versions)
            raise SagaVersionMissing(carrying.store.name, version, known)

    def _move(self, held: Instance, place: Place | None, envelope: MessageEnvelope) -> Move:
        if place is None:
            return Move(held.progress, verdict=Verdict.FOREIGN)
        definition: Definition = self._carrying.definition_of(held)
        known = definition.steps[place.step].reply(place.part, envelope.event_type)
        if known is None:
            return Move(held.progress, verdict=Verdict.FOREIGN)
        kind, good = known
        self._check(kind, envelope)
        sent = len(held.steps[place].messages)
        return answered(definition.plan, held.progress, place, good=good, sent=sent)

    def _check(self, kind: type, envelope: MessageEnvelope) -> None:
        """Park a message that is not what its class needs: no number of tries would help."""
        try:
            read_event(self._carrying.registry, kind, envelope)
        except Misfit as misfit:
            raise Park(f"{envelope.event_type} cannot be read: {misfit}") from misfit


def _as_id(text: str | None) -> UUID | None:
    """Return an id if a text is one, as this library writes it."""
    try:
        found = UUID(text or "")
    except ValueError:
        return None
    return found if str(found) == text else None
