-- Renew an owner's lease, and say when the next of all leases ends.
-- KEYS[1] the owner's lease, KEYS[2] the sorted set of sessions (score: when the lease ends, in ms
--         of Redis's clock)
-- ARGV    span in ms, the session
-- Returns how many ms from now the earliest lease of any session ends; less than 0: it ended.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('SET', KEYS[1], 1, 'PX', ARGV[1])
redis.call('ZADD', KEYS[2], now + ARGV[1], ARGV[2])
local first = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
return math.floor(first[2] - now)
