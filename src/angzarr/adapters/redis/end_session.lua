-- Forget a session that holds nothing any more.
-- KEYS[1] its unacked hash, KEYS[2] its owner's lease, KEYS[3] the sorted set of sessions
-- ARGV    the session, 'whole' if the lease is the session's own and ends with it
-- Returns 1, or 0 if messages are left: they are given back first.
if redis.call('EXISTS', KEYS[1]) == 1 then
  return 0
end
redis.call('ZREM', KEYS[3], ARGV[1])
redis.call('DEL', ARGV[1] .. ':fetched')
if ARGV[2] == 'whole' then
  redis.call('DEL', KEYS[2])
end
return 1
