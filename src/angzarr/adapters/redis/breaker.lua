-- One step of a shared breaker; says the same as resilience/breaker_rules.py, whose names it uses.
-- KEYS: state, names (sorted set: when each was last touched), version, history (stream)
-- ARGV: step, name, channel, settings (JSON, spans in ms), id, then what the step takes. A step
-- whose reply was lost is sent again with its id: it changes nothing more and hears the same.
-- Returns now (ms), the state (JSON), the phase before, whether a call was let through, and how
-- long one that was not should wait (ms).
local step, name, channel, id = ARGV[1], ARGV[2], ARGV[3], ARGV[5]
local rules = cjson.decode(ARGV[4])
local KEPT = 604800000 -- an untouched breaker is forgotten after a week
local PROBE_WAIT, SLICES, UNEVEN = 1000, 30, 1000

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local PHASES = {closed = true, open = true, half_open = true, isolated = true}

-- Returns nothing if there is no state that can be read: the breaker begins anew then.
local function read(found)
  if type(found) ~= 'string' then return end
  local fine, state = pcall(cjson.decode, found)
  fine = fine and type(state) == 'table' and PHASES[state.phase] and state.era
    and type(state.tallies) == 'table' and type(state.probes) == 'table'
    and state.in_a_row and state.successes and (state.phase ~= 'open' or state.retry_at)
  return fine and state or nil
end

local stored = redis.pcall('GET', KEYS[1])
local state = read(stored)
  or {phase = 'closed', era = 0, tallies = {}, in_a_row = 0, probes = {}, successes = 0}
local before, permitted, wait = state.phase, 0, 0

local function change(phase, reason, requests, failures, successes)
  state = {
    phase = phase, era = state.era + 1, tallies = {}, in_a_row = 0, probes = {}, successes = 0,
    changed_at = now, reason = reason, judged = {requests, failures, successes},
    cause = {id, before}, ill_since = phase ~= 'closed' and (state.ill_since or now) or nil,
  }
end

local function open(reason, requests, failures, successes)
  change('open', reason, requests, failures, successes)
  state.retry_at = now + rules.open_for
end

local function close(reason, requests, failures, successes)
  change('closed', reason, requests, failures, successes)
  if rules.ramp_up > 0 then state.ramp_from = now end
end

local function without(token)
  local left = {}
  for _, probe in ipairs(state.probes) do
    if probe[1] ~= token then left[#left + 1] = probe end
  end
  return left
end

-- Returns how long it is until the end of a span that began before; 0: it is over.
local function left(finish, span)
  local ms = finish - now
  return ms > 0 and ms <= span + UNEVEN and ms or 0
end

local function probe(token)
  local out, soonest = {}, nil
  for _, one in ipairs(state.probes) do
    if left(one[2], rules.probe_lease) > 0 then
      out[#out + 1] = one
      soonest = math.min(soonest or one[2], one[2])
      if one[1] == token then permitted = 1 end
    end
  end
  state.probes = out
  if permitted == 1 then return end
  if #out < rules.probes then
    out[#out + 1] = {token, now + rules.probe_lease}
    permitted = 1
  else
    wait = math.min(soonest - now, PROBE_WAIT)
  end
end

local function admit(token)
  if state.phase == 'closed' then
    permitted = 1 -- the caller knows by now that it is closed, and ramps up by itself
  elseif state.phase == 'isolated' then
    wait = rules.open_for
  elseif state.phase == 'open' and left(state.retry_at, rules.open_for) > 0 then
    wait = left(state.retry_at, rules.open_for)
  else
    if state.phase == 'open' then change('half_open', 'timeout_elapsed', 0, 0, 0) end
    probe(token)
  end
end

local function report(era, calls, failures, slow, lead, longest, tail)
  if state.phase ~= 'closed' or era ~= state.era or calls == 0 then return end
  local tallies = state.tallies
  local last = tallies[#tallies]
  if last and last[1] <= now and now < last[1] + rules.window / SLICES then
    tallies[#tallies] = {last[1], last[2] + calls, last[3] + failures, last[4] + slow}
  else
    tallies = {}
    for _, tally in ipairs(state.tallies) do
      if tally[1] > now - rules.window and tally[1] <= now then tallies[#tallies + 1] = tally end
    end
    tallies[#tallies + 1] = {now, calls, failures, slow}
  end
  local all, ill, slows = 0, 0, 0
  for _, tally in ipairs(tallies) do
    all, ill, slows = all + tally[2], ill + tally[3], slows + tally[4]
  end
  local in_a_row = math.max(state.in_a_row + lead, longest)
  if all >= rules.min_calls and (
    (failures > 0 and in_a_row >= rules.failures_in_a_row)
    or ill >= rules.failure_share * all
    or slows >= rules.slow_share * all
  ) then
    return open('threshold_exceeded', all, ill, all - ill)
  end
  state.tallies = tallies
  if state.ramp_from and state.ramp_from > now + UNEVEN then state.ramp_from = now end
  state.in_a_row = lead == calls and state.in_a_row + calls or tail
end

local function probed(token, ok)
  local others = without(token)
  if state.phase ~= 'half_open' or #others == #state.probes then return end
  if not ok then
    return open('half_open_failed', state.successes + 1, 1, state.successes)
  end
  local successes = state.successes + 1
  if successes >= rules.successes_to_close then
    return close('threshold_met', successes, 0, successes)
  end
  state.probes, state.successes = others, successes
end

local function reset()
  if state.phase == 'closed' then
    state.tallies, state.in_a_row, state.ramp_from, state.judged = {}, 0, nil, nil
  else
    close('operator', 0, 0, 0)
  end
end

local function number(at) return tonumber(ARGV[at]) end

if step == 'admit' then admit(ARGV[6])
elseif step == 'report' then
  report(number(6), number(7), number(8), number(9), number(10), number(11), number(12))
elseif step == 'probed' then probed(ARGV[6], ARGV[7] == '1')
elseif step == 'forgo' then state.probes = without(ARGV[6])
elseif step == 'isolate' then
  if state.phase ~= 'isolated' then change('isolated', 'operator', 0, 0, 0) end
elseif step == 'reset' then reset()
end

local told = cjson.encode(state)
if step ~= 'look' and told ~= stored then
  local isolated = state.phase == 'isolated'
  if isolated then redis.call('SET', KEYS[1], told)
  else redis.call('SET', KEYS[1], told, 'PX', KEPT) end
  redis.call('ZADD', KEYS[2], isolated and '+inf' or now, name)
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now - KEPT)
  if before ~= state.phase then
    local version = redis.call('INCR', KEYS[3])
    -- A user who may not publish (ACL) still counts: the others look once a second.
    redis.pcall('PUBLISH', channel, version .. ' breaker ' .. name)
    local by = (step == 'isolate' or step == 'reset') and ARGV[6] or ''
    redis.call('XADD', KEYS[4], 'MAXLEN', '~', 1000, '*',
      'name', name, 'before', before, 'by', by, 'state', told)
  end
end
if state.cause and state.cause[1] == id then before = state.cause[2] end
return {now, told, before, permitted, wait}
