"""Steps that Redis takes as one: each looks at a lease, or at an owner, and acts on what it saw.

A command that was sent before a lease ended may arrive after it. So nothing is read from a partition
in one step and checked in another.
"""

from typing import Final

# Keys: a lease and its stream, again and again. Arguments: token, group, member, count for all.
READ: Final = """
local found, left = {}, tonumber(ARGV[4])
for at = 1, #KEYS, 2 do
  local read = false
  if left > 0 and redis.call('GET', KEYS[at]) == ARGV[1] then
    read = redis.call('XREADGROUP', 'GROUP', ARGV[2], ARGV[3], 'COUNT', left,
      'STREAMS', KEYS[at + 1], '>')
  end
  local entries = read and read[1][2] or {}
  left = left - #entries
  found[#found + 1] = entries
end
return found
"""

# Keys: a lease and its stream. Arguments: token, group, member, cursor, count.
TAKE_OVER: Final = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return false end
return redis.call('XAUTOCLAIM', KEYS[2], ARGV[2], ARGV[3], 0, ARGV[4], 'COUNT', ARGV[5])
"""

# Keys: leases. Arguments: token, milliseconds. Returns 1 for each that is still held.
RENEW: Final = """
local held = {}
for at, lease in ipairs(KEYS) do
  local mine = redis.call('GET', lease) == ARGV[1]
  held[at] = mine and redis.call('PEXPIRE', lease, ARGV[2]) or 0
end
return held
"""

# Keys: leases. Arguments: token.
RELEASE: Final = """
for _, lease in ipairs(KEYS) do
  if redis.call('GET', lease) == ARGV[1] then redis.call('DEL', lease) end
end
"""

# Keys: the members of a topic. Arguments: member, milliseconds. Returns those that live.
ATTEND: Final = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[2] * 2)
return redis.call('ZRANGE', KEYS[1], 0, -1)
"""

# Keys: a stream. Arguments: group, member, idle milliseconds, entries. What another member has taken
# over meanwhile stays with it.
SET_IDLE: Final = """
for at = 4, #ARGV do
  local mine = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[at], ARGV[at], 1, ARGV[2])
  if #mine > 0 then
    redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[at], 'IDLE', ARGV[3], 'JUSTID')
  end
end
"""

# Keys: a stream. Arguments: group, member that leaves or '', idle milliseconds. A member that holds
# entries stays, since they would be lost with it.
FORGET_MEMBERS: Final = """
for _, found in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  local member = {}
  for at = 1, #found, 2 do member[found[at]] = found[at + 1] end
  local gone = member['name'] == ARGV[2] or member['idle'] >= tonumber(ARGV[3])
  if gone and member['pending'] == 0 then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], member['name'])
  end
end
"""
