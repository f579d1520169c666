-- Put facts into their outbox, and drop the oldest beyond its bound.
-- KEYS[1] the stream
-- ARGV    most facts that wait, then their lines
-- A stream that cannot be written to (it is another program's key, or the user has no right to it)
-- costs facts and nothing else: they are counted as dropped.
local stream, most, dropped = KEYS[1], tonumber(ARGV[1]), 0
for i = 2, #ARGV do
  local put = redis.pcall('XADD', stream, '*', 'fact', ARGV[i])
  if type(put) == 'table' and put.err then
    dropped = dropped + 1
  end
end
local length = redis.pcall('XLEN', stream)
if type(length) == 'number' and length > most then
  local trimmed = redis.pcall('XTRIM', stream, 'MAXLEN', '~', most)
  dropped = dropped + (tonumber(trimmed) or 0)
end
if dropped > 0 then
  redis.pcall('INCRBY', stream .. ':dropped', dropped)
end
return dropped
