-- Condemn bodies that have been in a state for longer than a span; their names are not given again.
-- KEYS[1] what the names of all keys of the register begin with
-- ARGV    state, span in ms, how many characters an address is shorter than a URI, then URIs
-- Returns those that are condemned now.
local base, state, span = KEYS[1], ARGV[1], tonumber(ARGV[2])
local time, condemned = redis.call('TIME'), {}
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for i = 4, #ARGV do
  local uri = ARGV[i]
  local since = redis.call('ZSCORE', base .. ':' .. state, uri)
  if since and now - tonumber(since) >= span then
    local address = string.sub(uri, 1, -tonumber(ARGV[3]) - 1)
    if redis.call('HGET', base .. ':addresses', address) == uri then
      redis.call('HDEL', base .. ':addresses', address)
    end
    redis.call('DEL', base .. ':by:' .. uri)
    if state ~= 'condemned' then
      move({base}, {uri, 'condemned'})
    end
    condemned[#condemned + 1] = uri
  end
end
return condemned
