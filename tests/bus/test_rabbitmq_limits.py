"""A limit around RabbitMQ's client holds, although the client may swallow a cancellation."""

import asyncio
import random
from contextlib import suppress

import pytest
from aiormq.exceptions import AMQPError, ChannelInvalidStateError

from pillarbox.bus.rabbitmq import RabbitMQMessageBus
from pillarbox.bus.rabbitmq.leaving import leavable
from pillarbox.servers import RabbitMq

ROUNDS = 150
MORE_QUESTIONS_THAN_TIME = 300


async def test_a_call_that_swallows_its_cancellation_is_left() -> None:
    released = asyncio.Event()

    async def stubborn() -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await released.wait()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await leavable(stubborn())
    released.set()


async def test_an_answer_and_a_failure_pass_through() -> None:
    async def failure() -> None:
        raise ConnectionError("in this test")

    assert await leavable(asyncio.sleep(0, "answer")) == "answer"
    with pytest.raises(ConnectionError):
        await leavable(failure())


async def test_a_call_that_the_client_cancels_itself_is_a_broken_connection() -> None:
    given_up: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def call() -> None:
        await given_up

    asyncio.get_running_loop().call_soon(given_up.cancel)

    with pytest.raises(ConnectionError):
        await leavable(call())


async def test_no_moment_of_a_question_makes_its_limit_pass_unheard(
    rabbitmq_server: RabbitMq,
) -> None:
    bus = RabbitMQMessageBus(rabbitmq_server.url)
    await bus.apply(["limits"])
    chance = random.Random(7)
    unheard = 0
    for _ in range(ROUNDS):
        # A question that is left in the middle may cost the connection, which is an answer too.
        with suppress(TimeoutError, OSError, AMQPError, ChannelInvalidStateError):
            async with asyncio.timeout(chance.uniform(0.005, 0.03)):
                queues = await bus._queues()
                for _ in range(MORE_QUESTIONS_THAN_TIME):
                    assert await queues.problem() is None
                unheard += 1
    await bus.close()

    assert unheard == 0


async def test_a_question_over_a_closed_connection_is_a_failure_of_the_connection(
    rabbitmq_server: RabbitMq,
) -> None:
    bus = RabbitMQMessageBus(rabbitmq_server.url)
    queues = await bus._queues()
    await bus.close()

    with pytest.raises(ConnectionError):
        await queues.problem()
