-- Put facts into their outbox, and drop the oldest beyond its bound.
-- KEYS[1] the stream
-- ARGV    most facts that wait, then their lines
-- A stream that cannot be written to (it is another program's key) costs facts and nothing else:
-- they are counted as dropped.
local stream, most, dropped = KEYS[1], tonumber(ARGV[1]), 0
for i = 2, #ARGV do
  local put = redis.pcall('XADD', stream, '*', 'fact', ARGV[i])
  if type(put) == 'table' and put.err then
    dropped = dropped + 1
  end
end
local length = redis.pcall('XLEN', stream)
if type(length) == 'number' and length > most then
  dropped = dropped + redis.call('XTRIM', stream, 'MAXLEN', '~', most)
end
if dropped > 0 then
  redis.call('INCRBY', stream .. ':dropped', dropped)
end
return dropped
