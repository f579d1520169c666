-- Register who needs a body that is about to be put (angzarr.payloads.holders.PayloadHolders.hold).
-- KEYS[1] what the names of all keys of the register begin with
-- ARGV    address, size, holder, the URI of a new generation
-- Returns the URI to put it at. Sent twice it does the same.
local base, uri = KEYS[1], redis.call('HGET', KEYS[1] .. ':addresses', ARGV[1])
if not uri then
  uri = ARGV[4]
  redis.call('HSET', base .. ':addresses', ARGV[1], uri)
  redis.call('HSET', base .. ':sizes', uri, ARGV[2])
end
redis.call('SADD', base .. ':by:' .. uri, ARGV[3])
move({base}, {uri, 'held'})
return uri
