-- Bodies that have been in a state for longer than a span, the longest first.
-- KEYS[1] what the names of all keys of the register begin with
-- ARGV    state, span in ms, how many to skip, how many to return
-- Returns for each: URI, ms in that state, size, how many hold it, one who does or ''.
local base, answers, time = KEYS[1], {}, redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local key, most = base .. ':' .. ARGV[1], now - tonumber(ARGV[2])
local found = redis.call(
  'ZRANGEBYSCORE', key, '-inf', most, 'WITHSCORES', 'LIMIT', ARGV[3], ARGV[4])
for i = 1, #found, 2 do
  local holders = base .. ':by:' .. found[i]
  answers[#answers + 1] = {
    found[i], now - tonumber(found[i + 1]),
    tonumber(redis.call('HGET', base .. ':sizes', found[i]) or 0),
    redis.call('SCARD', holders), redis.call('SRANDMEMBER', holders) or '',
  }
end
return answers
