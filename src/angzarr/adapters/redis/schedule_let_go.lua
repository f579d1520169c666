-- Let go of rows (angzarr.delivery.schedule.DueMessages.done and give_back).
-- KEYS[1] row -> due, [2] row -> message, [3] row -> token, as in schedule_put.lua
-- ARGV    token, in how many ms they are due again or -1 if they are published, rows ...
-- Only what this token still has; a row put again meanwhile, or lent to another, stays as it is.
local due, messages, tokens, token, pause = KEYS[1], KEYS[2], KEYS[3], ARGV[1], tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

for i = 3, #ARGV do
  local row = ARGV[i]
  if redis.call('HGET', tokens, row) == token then
    redis.call('HDEL', tokens, row)
    if pause < 0 then
      redis.call('ZREM', due, row)
      redis.call('HDEL', messages, row)
    else
      redis.call('ZADD', due, now + pause, row)
    end
  end
end
return 1
