-- Lend what is due to a mover (angzarr.delivery.schedule.DueMessages.take).
-- KEYS[1] row -> due, [2] row -> message, [3] row -> token, as in schedule_put.lua;
--         [4] set: what this token took, kept as long as the lease
-- ARGV    token, how many at most, lease in ms
-- Returns in how many ms the next row is due, '' if none waits, then row, message, row, message ...
-- Sent twice with one token it lends the same rows.
local due, messages, tokens, taken, token = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local rows = {}

for _, row in ipairs(redis.call('SMEMBERS', taken)) do
  if redis.call('HGET', tokens, row) == token then
    rows[#rows + 1] = row
  end
end
if #rows == 0 then
  rows = redis.call('ZRANGEBYSCORE', due, '-inf', now, 'LIMIT', 0, ARGV[2])
  redis.call('DEL', taken)
  for _, row in ipairs(rows) do
    redis.call('ZADD', due, now + ARGV[3], row)
    redis.call('HSET', tokens, row, token)
    redis.call('SADD', taken, row)
  end
  redis.call('PEXPIRE', taken, ARGV[3])
end

local first = redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')
local reply = {first[2] and string.format('%.0f', first[2] - now) or ''}
for _, row in ipairs(rows) do
  reply[#reply + 1] = row
  reply[#reply + 1] = redis.call('HGET', messages, row) or ''
end
return reply
