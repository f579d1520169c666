-- One step of the fleet's switches (angzarr.resilience.switches.SwitchControls).
-- KEYS[1] hash: id -> switch, [2] version, [3] stream: the history
-- ARGV    channel, most switches, most changes, step, then
--         look:   nothing
--         put:    id, when it ends: ms, or ms from now behind a '+', or 0; what is said (JSON)
--         resume: what is said (JSON), ids
-- A switch is "<begun at, ms> <ends at, ms, or 0> <what is said>"; what is said is not read here.
-- Returns now (ms), whether there are too many, the changes and all switches. A change is the id
-- of its entry in the history, the switch before and after ('' for none), and what is said of it.
local switches, version, history = KEYS[1], KEYS[2], KEYS[3]
local channel, most, remembered, step = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local changes, full = {}, 0

local function change(id, after, said)
  local before = redis.call('HGET', switches, id) or ''
  if after ~= '' then redis.call('HSET', switches, id, after)
  elseif before ~= '' then redis.call('HDEL', switches, id)
  else return end
  local entry = redis.call('XADD', history, 'MAXLEN', '~', remembered, '*',
    'before', before, 'after', after, 'said', said)
  local number = redis.call('INCR', version)
  -- A user who may not publish (ACL) still counts: the others look once a second.
  redis.pcall('PUBLISH', channel, number .. ' switch ' .. id)
  changes[#changes + 1] = {entry, before, after, said}
end

local function forget_what_is_over()
  local found = redis.call('HGETALL', switches)
  for at = 1, #found, 2 do
    local ends = tonumber(string.match(found[at + 1], '^%d+ (%d+) '))
    if ends > 0 and ends <= now then redis.call('HDEL', switches, found[at]) end
  end
end

if step ~= 'look' then forget_what_is_over() end
if step == 'put' then
  local id, ends, said = ARGV[5], ARGV[6], ARGV[7]
  if string.sub(ends, 1, 1) == '+' then ends = now + tonumber(ends) end
  if redis.call('HEXISTS', switches, id) == 0 and redis.call('HLEN', switches) >= most then
    full = 1
  else
    change(id, string.format('%.0f %.0f %s', now, ends, said), said)
  end
elseif step == 'resume' then
  for at = 6, #ARGV do change(ARGV[at], '', ARGV[5]) end
end
return {now, full, changes, redis.call('HVALS', switches)}
