-- Put messages of one session back into the lists they came from.
-- KEYS[1] the session's unacked hash, KEYS[2] its owner's lease, KEYS[3] the sorted set of sessions
-- ARGV    the session, 'dead' (only while the lease has ended) or 'own', 'RPUSH' (to be fetched
--         next) or 'LPUSH' (after all others), then for each message: tag, list, raw
-- Returns how many were moved, -1 if the owner is alive after all. What is no longer in the hash
-- was let go, or given back by another, and is left alone; so sent twice it gives back once. What
-- its list does not take (it is none any more) stays where it is.
-- A dead session that holds nothing any more is forgotten.
local unacked, dead = KEYS[1], ARGV[2] == 'dead'
if dead and redis.call('EXISTS', KEYS[2]) == 1 then
  return -1
end
local moved = 0
for i = 4, #ARGV, 3 do
  if redis.call('HEXISTS', unacked, ARGV[i]) == 1 then
    local pushed = redis.pcall(ARGV[3], ARGV[i + 1], ARGV[i + 2])
    if type(pushed) == 'number' then
      redis.call('HDEL', unacked, ARGV[i])
      moved = moved + 1
    end
  end
end
if dead and redis.call('EXISTS', unacked) == 0 then
  redis.call('ZREM', KEYS[3], ARGV[1])
  redis.call('DEL', ARGV[1] .. ':fetched')
end
return moved
