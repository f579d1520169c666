-- Name sessions whose owner's lease has ended.
-- KEYS[1] the sorted set of sessions; a session is its owner's lease key, '#' and a name
-- ARGV    most sessions to name, ms after which one that still holds something is named again
-- A lease that something else renewed meanwhile (the claims of the same process share it) is
-- written down with its new end. Leases are keys of their own: not for Redis Cluster.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local dead = {}
for _, session in ipairs(redis.call('ZRANGE', KEYS[1], '-inf', now, 'BYSCORE', 'LIMIT', 0, ARGV[1])) do
  local left = redis.call('PTTL', string.match(session, '^(.*)#'))
  if left > 0 then
    redis.call('ZADD', KEYS[1], now + left, session)
  else
    redis.call('ZADD', KEYS[1], now + ARGV[2], session)
    dead[#dead + 1] = session
  end
end
return dead
