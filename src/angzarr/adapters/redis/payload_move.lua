-- Put a registered body into a state, and count its bytes there; a function of other scripts.
-- KEYS[1] what the names of all keys of the register begin with
-- ARGV    URI, new state ('held', 'free', 'condemned'; '' for none: it is forgotten)
local base, uri, state = KEYS[1], ARGV[1], ARGV[2]
local size = tonumber(redis.call('HGET', base .. ':sizes', uri) or 0)
for _, before in ipairs({'held', 'free', 'condemned'}) do
  if redis.call('ZREM', base .. ':' .. before, uri) == 1 then
    redis.call('HINCRBY', base .. ':bytes', before, -size)
  end
end
if state == '' then
  redis.call('HDEL', base .. ':sizes', uri)
else
  local time = redis.call('TIME')
  redis.call('ZADD', base .. ':' .. state, time[1] * 1000 + math.floor(time[2] / 1000), uri)
  redis.call('HINCRBY', base .. ':bytes', state, size)
end
return 1
