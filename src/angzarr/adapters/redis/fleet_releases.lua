-- Which releases are remembered (angzarr.fleet.Fleet.releases).
-- KEYS[1] sorted set: release -> when it was first seen, in ms of Redis's clock; [2] the same -> last
--         seen
-- Returns name, first and last seen (ms) of each, first seen first. Odd bytes are left out: they
-- would keep a client from reading all the rest.
local found, told = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES'), {}
for at = 1, #found, 2 do
  local name, first = found[at], found[at + 1]
  if string.find(name, '^[ -~]+$') then
    told[#told + 1] = name
    told[#told + 1] = first
    told[#told + 1] = redis.call('ZSCORE', KEYS[2], name) or first
  end
end
return told
