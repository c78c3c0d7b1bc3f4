"""Redis Streams, through redis-py."""

from pillarbox.bus.redis.bus import RedisMessageBus

__all__ = ["RedisMessageBus"]
