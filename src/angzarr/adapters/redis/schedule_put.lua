-- Let a message wait (angzarr.delivery.schedule.Schedule.put).
-- KEYS[1] sorted set: row -> when it is due, in ms of Redis's clock; [2] hash: row -> message;
--         [3] hash: row -> token of the mover that has it
-- ARGV    row, message, wait in ms
-- A row that a mover has is its no longer: it waits anew.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
redis.call('ZADD', KEYS[1], now + ARGV[3], ARGV[1])
redis.call('HDEL', KEYS[3], ARGV[1])
return 1
