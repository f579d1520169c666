-- The current version (angzarr.configuration.version.ConfigurationSource.current).
-- KEYS[1] hash: version -> number and what is said of it; [2] hash: version -> its body; [3] list of
--         the versions that became current
-- Returns {version, number and what is said, body}, or nothing.
local last = redis.call('LINDEX', KEYS[3], -1)
local version = last and string.match(last, '^(%S+) ')
if not version then return false end
return {version, redis.call('HGET', KEYS[1], version), redis.call('HGET', KEYS[2], version)}
