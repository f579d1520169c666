-- One step of a session: let go of what was acknowledged, then fetch what it has room for.
-- KEYS[1] the session's unacked hash, KEYS[2] its owner's lease, KEYS[3] the sorted set of sessions,
--         KEYS[4..] lists of messages, highest priority first, the same queues at each priority
-- ARGV    most messages to fetch, token of this fetch, lists that share a priority,
--         'fair' (the lists of one priority take turns) or 'first' (one list after the other),
--         the session ('' where no acknowledgement is wanted), then for each message to let go:
--         tag, how many arguments follow (0 for none), and those: the key of a claim's record and
--         what settle.lua takes, to end the claim before the message goes
-- Returns {state, tags that were not there, tags whose claim another holds, tags whose claim could
-- not be ended (they are kept), keys that are no lists, then for each message: list (an index),
-- raw}; the tags of the messages are token:1, token:2, ... State: 'full' (there may be more),
-- 'empty' (there was no more; every list has been read, so that tracking rings when one is written
-- to), 'idle' (nothing was asked for) or 'no lease' (nothing was fetched: the lease has ended, or
-- the session is not on the list by which others would find what it left).
-- Never popped without an owner. Sent twice with one token it fetches once, also if the second
-- arrives when all that the first brought has been let go: the number that ends a token is kept
-- with the name before it, as long as the session.
local unacked, most, token, owned = KEYS[1], tonumber(ARGV[1]), ARGV[2], ARGV[5] ~= ''
local FIRST_LIST = 4
local missing, fenced, kept, odd = {}, {}, {}, {}

local function is_settled(tag, key, from, to)
  local args = {}
  for i = from, to do
    args[#args + 1] = ARGV[i]
  end
  local worked, ended = pcall(settle, {key}, args)
  if not worked then
    kept[#kept + 1] = tag
  elseif ended == 0 then
    fenced[#fenced + 1] = tag
  end
  return worked
end

local i = 6
while i <= #ARGV do
  local tag, size = ARGV[i], tonumber(ARGV[i + 1])
  if size == 0 or is_settled(tag, ARGV[i + 2], i + 3, i + 1 + size) then
    if redis.call('HDEL', unacked, tag) == 0 then
      missing[#missing + 1] = tag
    end
  end
  i = i + 2 + size
end
if most == 0 then
  return {'idle', missing, fenced, kept, odd}
end
if owned and (redis.call('EXISTS', KEYS[2]) == 0 or not redis.call('ZSCORE', KEYS[3], ARGV[5])) then
  return {'no lease', missing, fenced, kept, odd}
end

local reply, count = {'full', missing, fenced, kept, odd}, 0
if owned then
  local before = redis.call('HGET', unacked, token .. ':1')
  while before do
    local length, start = string.match(before, '^(%d+):()')
    local list = string.sub(before, start, start + length - 1)
    local index = 0
    for i = FIRST_LIST, #KEYS do
      if KEYS[i] == list then index = i - FIRST_LIST + 1 end
    end
    reply[#reply + 1] = index
    reply[#reply + 1] = string.sub(before, start + length)
    count = count + 1
    before = redis.call('HGET', unacked, token .. ':' .. (count + 1))
  end
  if count > 0 then
    return reply
  end
  local name, number = string.match(token, '^(.*):(%d+)$')
  if tonumber(number) <= tonumber(redis.call('HGET', ARGV[5] .. ':fetched', name) or 0) then
    return {'idle', missing, fenced, kept, odd}
  end
end

local function take(i, raw)
  count = count + 1
  if owned then
    redis.call('HSET', unacked, token .. ':' .. count, #KEYS[i] .. ':' .. KEYS[i] .. raw)
  end
  reply[#reply + 1] = i - FIRST_LIST + 1
  reply[#reply + 1] = raw
end

local width, fair = tonumber(ARGV[3]), ARGV[4] == 'fair' and ARGV[3] ~= '1'
for first = FIRST_LIST, #KEYS, width do
  local open = {}
  for i = first, first + width - 1 do
    open[#open + 1] = i
  end
  while #open > 0 and count < most do
    local left = {}
    for _, i in ipairs(open) do
      local want = fair and 1 or most - count
      local got = count < most and redis.pcall('RPOP', KEYS[i], want)
      if got and got.err then
        odd[#odd + 1] = KEYS[i]
      elseif got then
        for _, raw in ipairs(got) do
          take(i, raw)
        end
        if #got == want then
          left[#left + 1] = i
        end
      end
    end
    open = left
  end
end
if owned and count > 0 then
  local name, number = string.match(token, '^(.*):(%d+)$')
  redis.call('HSET', ARGV[5] .. ':fetched', name, number)
end
if count < most then
  for i = FIRST_LIST, #KEYS do
    redis.pcall('LLEN', KEYS[i])
  end
  reply[1] = 'empty'
end
return reply
