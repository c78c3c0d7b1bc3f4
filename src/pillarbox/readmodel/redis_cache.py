"""Hot rows in Redis: copies with a token, so that nobody puts back what was removed."""

import secrets
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from redis.asyncio import Redis

from pillarbox.readmodel.cache import Found, RowName

# A row is a hash: v is the token, d the copy, e the epoch of its model. Without a token there is no
# putting: so a row that Redis has evicted is not filled by somebody who looked before.
_GET: Final = """
local epoch = redis.call('GET', KEYS[1]) or ''
local found = redis.call('HMGET', KEYS[2], 'v', 'd', 'e')
if found[1] and found[3] == epoch then return {found[1], found[2]} end
redis.call('DEL', KEYS[2])
redis.call('HSET', KEYS[2], 'v', ARGV[1], 'e', epoch)
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return {ARGV[1], false}
"""
_PUT: Final = """
local epoch = redis.call('GET', KEYS[1]) or ''
local found = redis.call('HMGET', KEYS[2], 'v', 'e')
if found[1] ~= ARGV[1] or found[2] ~= epoch then return 0 end
redis.call('HSET', KEYS[2], 'd', ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return 1
"""


class RedisRowCache:
    """Keep copies of rows in Redis; needs the extra `redis`.

        cache = RedisRowCache("redis://localhost:6379")
        box.read_model(RoutePlans, cache=cache)

    `keep` is how long a copy lives at most, as a net below its removal.
    """

    def __init__(
        self,
        url: str,
        *,
        keep: timedelta = timedelta(hours=1),
        prefix: str = "pillarbox:readmodel",
        **options: Any,
    ) -> None:
        self._redis: Any = Redis.from_url(url, **options)
        self._keep = max(int(keep.total_seconds() * 1000), 1)
        self._prefix = prefix
        self._get = self._redis.register_script(_GET)
        self._put = self._redis.register_script(_PUT)

    async def get(self, model: str, row: RowName) -> Found:
        """Return a copy, or a token for putting one."""
        keys = [self._epoch(model), self._key(model, row)]
        token, content = await self._get(keys=keys, args=[secrets.token_hex(8), self._keep])
        return Found(content, token.decode())

    async def put(self, model: str, row: RowName, content: bytes, token: str) -> bool:
        """Keep a copy if the token is still good; say whether it was kept."""
        keys = [self._epoch(model), self._key(model, row)]
        return bool(await self._put(keys=keys, args=[token, content, self._keep]))

    async def forget(self, model: str, rows: Sequence[RowName]) -> None:
        """Remove copies with their tokens."""
        if rows:
            await self._redis.unlink(*(self._key(model, row) for row in rows))

    async def forget_all(self, model: str) -> None:
        """Begin another epoch of a model: what is of an older one counts as not there."""
        await self._redis.set(self._epoch(model), secrets.token_hex(8))

    async def close(self) -> None:
        """Let go of the connections."""
        await self._redis.aclose()

    def _epoch(self, model: str) -> str:
        return f"{self._prefix}:{{{model}}}:epoch"

    def _key(self, model: str, row: RowName) -> str:
        # The length keeps ("a:b", "c") and ("a", "b:c") apart; the braces keep a model in one slot.
        return f"{self._prefix}:{{{model}}}:{len(row[0])}:{row[0]}:{row[1]}"
