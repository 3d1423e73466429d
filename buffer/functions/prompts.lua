-- The prompt pool: which prompt is drawn next, and the lease that gives it to a generator.
-- Per data source: `ready` (may be drawn), `drawn` (was, in this pass), `resting` (until an epoch), `retired`.
-- `left` holds the draws a source has left in this epoch, `quota` what it began with, `weight` draws per prompt.

local function eligible(run, source)
    return redis.call('SCARD', key(run, 'ready', source)) + redis.call('SCARD', key(run, 'drawn', source))
end

local function move_back(run, source, prompts, counter)
    if #prompts == 0 then return 0 end
    redis.call('SADD', key(run, 'ready', source), unpack(prompts))
    count(run, counter, #prompts)
    return #prompts
end

local WAKE_AT_ONCE = 1000 -- bounds what one call may take; the rest wakes with a later epoch

local function wake(run, source, epoch)
    local resting = key(run, 'resting', source)
    local due = redis.call('ZRANGEBYSCORE', resting, '-inf', epoch, 'LIMIT', 0, WAKE_AT_ONCE)
    if #due > 0 then redis.call('ZREM', resting, unpack(due)) end
    move_back(run, source, due, 'prompts_woken')
end

-- With too few prompts for the batches in flight, resting ones return, then retired ones.
local function refill(run, source, missing)
    missing = math.min(missing, WAKE_AT_ONCE)
    local popped, members = redis.call('ZPOPMIN', key(run, 'resting', source), missing), {}
    for i = 1, #popped, 2 do members[#members + 1] = popped[i] end
    missing = missing - move_back(run, source, members, 'prompts_recalled_resting')
    if missing > 0 then
        local retired = redis.call('SPOP', key(run, 'retired', source), missing)
        missing = missing - move_back(run, source, retired, 'prompts_recalled_retired')
    end
    return missing
end

local function weights(run)
    local flat, table_ = redis.call('HGETALL', key(run, 'weight')), {}
    for i = 1, #flat, 2 do table_[flat[i]] = tonumber(flat[i + 1]) end
    return table_
end

-- Starts the next epoch; false if there is nothing left to draw.
local function next_epoch(run)
    local epoch, sources, total = redis.call('HINCRBY', run.control, 'epoch', 1), weights(run), 0
    run.epoch = tostring(epoch)
    for source in pairs(sources) do
        wake(run, source, epoch)
        total = total + eligible(run, source)
    end
    local missing = (run.staleness + 1) * batch_of(run, stage_of(run, run.next)) - total
    for source in pairs(sources) do
        if missing > 0 then missing = refill(run, source, missing) end
    end
    local any = false
    for source, weight in pairs(sources) do
        local quota = math.floor(weight * eligible(run, source) + 0.5)
        if weight > 0 and quota == 0 and eligible(run, source) > 0 then quota = 1 end
        redis.call('HSET', key(run, 'quota'), source, quota)
        redis.call('HSET', key(run, 'left'), source, quota)
        any = any or quota > 0
    end
    return any
end

-- The source that is furthest behind its share of the epoch, so that every batch has the mixture's proportions.
local function next_source(run)
    local flat, best, share = redis.call('HGETALL', key(run, 'left')), nil, 0
    for i = 1, #flat, 2 do
        local left = tonumber(flat[i + 1])
        if left > 0 then
            local this = left / tonumber(redis.call('HGET', key(run, 'quota'), flat[i]))
            if this > share or (this == share and flat[i] < best) then best, share = flat[i], this end
        end
    end
    return best
end

local function pop(run, source)
    local ready, drawn = key(run, 'ready', source), key(run, 'drawn', source)
    local prompt = redis.call('SPOP', ready)
    if not prompt and redis.call('EXISTS', drawn) == 1 then -- the next pass over the source
        redis.call('RENAME', drawn, ready)
        prompt = redis.call('SPOP', ready)
    end
    if prompt then
        redis.call('SADD', drawn, prompt)
        redis.call('HINCRBY', key(run, 'left'), source, -1)
    else
        redis.call('HSET', key(run, 'left'), source, 0)
    end
    return prompt
end

-- The next prompt and its source; nil if the pool is exhausted.
local function draw(run)
    local turns = 0
    while true do
        local source = next_source(run)
        if source then
            local prompt = pop(run, source)
            if prompt then return prompt, source end
        else
            turns = turns + 1
            if turns > 2 or not next_epoch(run) then return nil end
        end
    end
end

-- Draws of one prompt within one epoch are numbered on, from 0 or, in a run restored from a snapshot, from a
-- number that no lost group had.
local function number_draw(run, prompt)
    local draws = key(run, 'draws')
    local last, n = string.match(redis.call('HGET', draws, prompt) or '', '^(%d+):(%d+)$')
    n = last == run.epoch and tonumber(n) + 1 or run.draw_floor
    redis.call('HSET', draws, prompt, run.epoch .. ':' .. n)
    return n
end

local function start(run, holder, stage)
    local prompt, source = draw(run)
    if not prompt then return nil end
    local id = run.epoch .. '.' .. prompt .. '.' .. number_draw(run, prompt)
    local group = { FLYING, stage, holder.step, holder.attempt, holder.actor, source, holder.lineage, 0, false }
    write_group(run, id, group)
    redis.call('ZADD', flying(run, stage), holder.step, id)
    count(run, 'started')
    return id, group
end

-- Groups whose lease was lost keep their place; they go first, to a generator at least as fresh.
local function reissue(run, holder)
    local id = redis.call('ZRANGEBYSCORE', run.lost, '-inf', holder.step, 'LIMIT', 0, 1)[1]
    if not id then return nil end
    local group = read_group(run, id)
    redis.call('ZREM', run.lost, id)
    redis.call('HDEL', run.progress, id)
    group[STEP], group[ATTEMPT] = holder.step, holder.attempt
    group[ACTOR], group[LINEAGE] = holder.actor, holder.lineage
    write_group(run, id, group)
    redis.call('ZADD', flying(run, group[STAGE]), holder.step, id)
    count(run, 'reissued')
    return id, group
end

local function told(run, id, group)
    local prompt = string.match(id, '^%d+%.(%d+)%.')
    return { id, group[ATTEMPT], group[STAGE], group_size_of(run, group[STAGE]), group[SOURCE],
        redis.call('HGET', key(run, 'history'), prompt) or '', redis.call('HGET', key(run, 'prior'), prompt) or '' }
end

-- The earliest stage with room for a group sampled by `step`.
local function open_stage(run, step)
    for stage = stage_of(run, run.next), stage_of(run, step + run.staleness) do
        if room(run, stage, step) > 0 then return stage end
    end
end

local function why_not(run, lineage, step)
    if run.stopping then return 'stopping' end
    if run.paused then return 'paused' end
    if not valid(run, lineage, step) or step + run.staleness < run.next then return 'stale' end
end

-- `holder`: who leases (actor), on which weights (lineage, step).
local function lease(run, holder, wanted, request)
    local refused, groups = why_not(run, holder.lineage, holder.step), {}
    while not refused and #groups < wanted do
        holder.attempt = request .. '-' .. #groups
        local id, group = reissue(run, holder)
        if not id then
            local stage = open_stage(run, holder.step)
            if stage then
                id, group = start(run, holder, stage)
                if not id then refused = 'exhausted' end
            else
                refused = 'admission'
            end
        end
        if id then groups[#groups + 1] = told(run, id, group) end
    end
    return { refused or '', groups }
end

-- ARGV: incarnation, actor, lineage, step, wanted, request. A repeated request gets its first answer.
define('lease', function(run, args)
    local last = redis.call('HGET', key(run, 'requests'), args[2])
    if last then
        local request, answer = unpack(cmsgpack.unpack(last))
        if request == args[6] then return answer end
    end
    local holder = { actor = args[2], lineage = tonumber(args[3]), step = tonumber(args[4]) }
    local answer = lease(run, holder, tonumber(args[5]), args[6])
    if #answer[2] > 0 then
        redis.call('HSET', key(run, 'requests'), args[2], cmsgpack.pack({ args[6], answer }))
    end
    return answer
end)

-- What a finished group says of its prompt: whether it goes on, rests or retires.
local function judge(run, prompt, source, standing, until_epoch)
    if standing == 'active' then return end
    redis.call('SREM', key(run, 'ready', source), prompt)
    redis.call('SREM', key(run, 'drawn', source), prompt)
    if standing == 'retired' then
        redis.call('SADD', key(run, 'retired', source), prompt)
    else
        redis.call('ZADD', key(run, 'resting', source), until_epoch, prompt)
    end
end
