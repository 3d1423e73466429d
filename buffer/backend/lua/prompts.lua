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

-- A number for each source: `weight`, `quota` or `left`.
local function by_source(run, name)
    local flat, numbers = redis.call('HGETALL', key(run, name)), {}
    for i = 1, #flat, 2 do numbers[flat[i]] = tonumber(flat[i + 1]) end
    return numbers
end

-- Starts the next epoch; false if there is nothing left to draw.
local function next_epoch(run)
    local epoch, sources, total = redis.call('HINCRBY', run.control, 'epoch', 1), by_source(run, 'weight'), 0
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
    run.quota, run.left = {}, {}
    for source, weight in pairs(sources) do
        local quota = math.floor(weight * eligible(run, source) + 0.5)
        if weight > 0 and quota == 0 and eligible(run, source) > 0 then quota = 1 end
        run.quota[source], run.left[source] = quota, quota
        redis.call('HSET', key(run, 'quota'), source, quota)
        redis.call('HSET', key(run, 'left'), source, quota)
        any = any or quota > 0
    end
    return any
end

-- The source that is furthest behind its share of the epoch, so that every batch has the mixture's proportions.
local function next_source(run)
    local best, share = nil, 0
    for source, left in pairs(run.left) do
        local this = left > 0 and left / run.quota[source] or 0
        if this > share or (best and this == share and source < best) then best, share = source, this end
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
        run.left[source] = redis.call('HINCRBY', key(run, 'left'), source, -1)
    else
        run.left[source] = 0
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

-- A new group of `stage` for the holder; nil if the pool is exhausted.
local function start(run, holder, stage)
    local prompt, source = draw(run)
    if not prompt then return nil end
    local id = run.epoch .. '.' .. prompt .. '.' .. number_draw(run, prompt)
    redis.call('ZADD', flying(run, stage), holder.step, id)
    return id, { FLYING, stage, holder.step, '', holder.actor, source, holder.lineage, 0, false }
end

-- A group whose lease was lost keeps its place.
local function reissue(run, holder, id)
    local group = read_group(run, id)
    redis.call('ZREM', run.lost, id)
    redis.call('HDEL', run.progress, id)
    group[STEP], group[ACTOR], group[LINEAGE] = holder.step, holder.actor, holder.lineage
    redis.call('ZADD', flying(run, group[STAGE]), holder.step, id)
    return group
end

-- The earliest stage with room for groups sampled by `step`, and for how many.
local function open_stage(run, step)
    for stage = stage_of(run, run.next), stage_of(run, step + run.staleness) do
        local free = room(run, stage, step)
        if free > 0 then return stage, free end
    end
    return nil, 0
end

local function why_not(run, lineage, step)
    if run.stopping then return 'stopping' end
    if run.paused then return 'paused' end
    if not valid(run, lineage, step) or step + run.staleness < run.next then return 'stale' end
end

-- What the generator needs to know of its groups.
local function told(run, ids, groups)
    local prompts, rows = {}, {}
    for i, id in ipairs(ids) do prompts[i] = string.match(id, '^%d+%.(%d+)%.') end
    local histories, priors = read_fields(key(run, 'history'), prompts), read_fields(key(run, 'prior'), prompts)
    for i, group in ipairs(groups) do
        rows[i] = { ids[i], group[ATTEMPT], group[STAGE], group_size_of(run, group[STAGE]), group[SOURCE],
            histories[i] or '', priors[i] or '' }
    end
    return rows
end

-- Starts new groups until `wanted` are held; returns how many, and why not all.
local function start_some(run, holder, wanted, ids, groups)
    local started, stage, free = 0, nil, 0
    run.left, run.quota = by_source(run, 'left'), by_source(run, 'quota')
    while #ids < wanted do
        if free == 0 then stage, free = open_stage(run, holder.step) end
        if not stage then return started, 'admission' end
        local id, group = start(run, holder, stage)
        if not id then return started, 'exhausted' end
        started, free = started + 1, free - 1
        ids[#ids + 1], groups[#groups + 1] = id, group
    end
    return started, ''
end

-- `holder`: who leases (actor), on which weights (lineage, step). Lost groups go first, to one at least as fresh.
local function lease(run, holder, wanted, request)
    local refused, started, groups = why_not(run, holder.lineage, holder.step), nil, {}
    if refused then return { refused, {} } end
    local ids = redis.call('ZRANGEBYSCORE', run.lost, '-inf', holder.step, 'LIMIT', 0, wanted)
    for i, id in ipairs(ids) do groups[i] = reissue(run, holder, id) end
    if #ids > 0 then count(run, 'reissued', #ids) end
    started, refused = start_some(run, holder, wanted, ids, groups)
    if started > 0 then count(run, 'started', started) end
    for i, group in ipairs(groups) do group[ATTEMPT] = request .. '-' .. (i - 1) end
    write_groups(run, ids, groups)
    return { refused, told(run, ids, groups) }
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
