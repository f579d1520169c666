-- One step of the fleet's switches (angzarr.resilience.switches.SwitchControls).
-- KEYS[1] hash: id -> switch, [2] version, [3] stream: the history
-- ARGV    channel, most switches, most changes, step, then
--         look:   nothing
--         put:    step id, id, when it ends: ms, or ms from now behind a '+', or 0; what is said
--                 (JSON)
--         resume: step id, what is said (JSON), ids
-- A step whose reply was lost is sent again with its step id: what it did is found in the history,
-- it changes nothing more and hears the same.
-- A switch is "<begun at, ms> <ends at, ms, or 0> <what is said>" in ASCII; what is said is not
-- read here. All else that lies there is told as '?', and kept until it is resumed.
-- Returns now (ms), whether there are too many, the changes and all switches, each after its id. A
-- change is the id of its entry in the history, that of the switch, the switch before and after
-- ('' for none), and what is said of it.
local switches, version, history = KEYS[1], KEYS[2], KEYS[3]
local channel, most, remembered, step = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local step_id = ARGV[5]
local LONGEST = 65536 -- of a switch, bytes: nothing that can be put is as long
local SENT_AGAIN = 60000 -- within so long, ms; it takes a reconnect

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local changes, full = {}, 0

-- Odd bytes would keep a client from reading all the rest.
local function told(switch)
  if #switch > LONGEST or not string.find(switch, '^%d+ %d+ [ -~]+$') then return '?' end
  return switch
end

local function shown(id)
  return (string.gsub(string.sub(id, 1, 64), '[^!-~]', function(odd)
    return string.format('\\x%02x', string.byte(odd))
  end))
end

local function change(field, after, said)
  local found, id = redis.call('HGET', switches, field), shown(field)
  local before = found and told(found) or ''
  if after ~= '' then redis.call('HSET', switches, field, after)
  elseif found then redis.call('HDEL', switches, field)
  else return end
  local entry = redis.call('XADD', history, 'MAXLEN', '~', remembered, '*',
    'step', step_id, 'switch', id, 'before', before, 'after', after, 'said', said)
  local number = redis.call('INCR', version)
  -- A user who may not publish (ACL) still counts: the others look once a second.
  redis.pcall('PUBLISH', channel, number .. ' switch ' .. id)
  changes[#changes + 1] = {entry, id, before, after, said}
end

local function done_before()
  local since = string.format('%.0f', now - SENT_AGAIN)
  for _, found in ipairs(redis.call('XREVRANGE', history, '+', since)) do
    local entry, fields = found[1], {}
    for at = 1, #found[2], 2 do fields[found[2][at]] = found[2][at + 1] end
    if fields.step == step_id then
      local before, after = fields.before, fields.after
      table.insert(changes, 1, {entry, fields.switch, before, after, fields.said})
    end
  end
  return #changes > 0
end

local function forget_what_is_over()
  local found = redis.call('HGETALL', switches)
  for at = 1, #found, 2 do
    local ends = tonumber(string.match(told(found[at + 1]), '^%d+ (%d+) ') or 0)
    if ends > 0 and ends <= now then redis.call('HDEL', switches, found[at]) end
  end
end

local anew = step ~= 'look' and not done_before()
if anew then forget_what_is_over() end
if anew and step == 'put' then
  local id, ends, said = ARGV[6], ARGV[7], ARGV[8]
  if string.sub(ends, 1, 1) == '+' then ends = now + tonumber(ends) end
  if redis.call('HEXISTS', switches, id) == 0 and redis.call('HLEN', switches) >= most then
    full = 1
  else
    change(id, string.format('%.0f %.0f %s', now, ends, said), said)
  end
elseif anew and step == 'resume' then
  local fields = {}
  for _, field in ipairs(redis.call('HKEYS', switches)) do
    local id = shown(field)
    fields[id] = fields[id] or {}
    table.insert(fields[id], field)
  end
  for at = 7, #ARGV do
    for _, field in ipairs(fields[ARGV[at]] or {}) do change(field, '', ARGV[6]) end
  end
end
local all, found = {}, redis.call('HGETALL', switches)
for at = 1, #found, 2 do all[#all + 1] = {shown(found[at]), told(found[at + 1])} end
return {now, full, changes, all}
