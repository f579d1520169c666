-- A version becomes the current one (angzarr.configuration.version.ConfigurationStore.choose).
-- KEYS[1] hash: version -> what is said of it; [2] list of the versions that became current
-- ARGV    version, what is said of the choice
-- Returns 1; 0 if it is the current one already; -1 if there is no such version.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return -1 end
local last = redis.call('LINDEX', KEYS[2], -1)
if last and string.match(last, '^(%S+) ') == ARGV[1] then return 0 end
redis.call('RPUSH', KEYS[2], ARGV[1] .. ' chosen ' .. ARGV[2])
return 1
