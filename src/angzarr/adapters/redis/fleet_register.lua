-- A worker says what it is (angzarr.fleet.Fleet.register).
-- KEYS[1] hash: owner -> what it says; [2] sorted set: owner -> when it last said so, in ms of
--         Redis's clock; [3] sorted set: release -> when it was first seen; [4] the same -> last
-- ARGV    owner, what it says, how long that is kept (ms), release ('' for none), its life (ms)
-- What is too old is forgotten first: a release that comes back after its life is new.
local said, said_at, first, last = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, kept, release, life = ARGV[1], ARGV[3], ARGV[4], ARGV[5]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

for _, gone in ipairs(redis.call('ZRANGEBYSCORE', said_at, '-inf', now - kept)) do
  redis.call('ZREM', said_at, gone)
  redis.call('HDEL', said, gone)
end
for _, gone in ipairs(redis.call('ZRANGEBYSCORE', last, '-inf', now - life)) do
  redis.call('ZREM', last, gone)
  redis.call('ZREM', first, gone)
end
redis.call('HSET', said, owner, ARGV[2])
redis.call('ZADD', said_at, now, owner)
if release ~= '' then
  redis.call('ZADD', first, 'NX', now, release)
  redis.call('ZADD', last, now, release)
end
for at, key in ipairs(KEYS) do redis.call('PEXPIRE', key, 2 * (at <= 2 and kept or life)) end
return 1
