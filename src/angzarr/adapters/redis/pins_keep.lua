-- The pins of an event (angzarr.configuration.pins.PinStore.keep): the first one of an id stays.
-- KEYS[1] hash: id -> version
-- ARGV    life in ms, then id and version in turn
-- Returns all of the hash. Sent twice it does the same.
for i = 2, #ARGV, 2 do redis.call('HSETNX', KEYS[1], ARGV[i], ARGV[i + 1]) end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return redis.call('HGETALL', KEYS[1])
