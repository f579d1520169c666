-- Say whether a delivery still holds its claim, and keep facts of it if so.
-- KEYS[1] record
-- ARGV    token, how many facts are kept, their stream, the most that wait there and their lines
--         (see keep_facts.lua; on one server only)
-- Returns 1; 0, having changed nothing, if the token does not hold the record.
local key = KEYS[1]
local record = redis.call('HMGET', key, 'status', 'token')
if record[1] ~= 'pending' or record[2] ~= ARGV[1] then
  return 0
end
-- A server that is full, or a replica, refuses this write. The caller tries again then; keep_facts
-- would drop the facts, and the copy would be published without them.
redis.call('HSET', key, 'status', 'pending')
local kept = {}
for i = 4, #ARGV do
  kept[#kept + 1] = ARGV[i]
end
keep_facts({ARGV[3]}, kept)
return 1
