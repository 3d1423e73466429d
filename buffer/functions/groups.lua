-- What generators tell of the groups they hold: finished, flat, given up, still at work.

local BUCKETS = { 0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 0.999, 1 } -- upper bounds of a pass rate

local function bucket(rate)
    for i, bound in ipairs(BUCKETS) do
        if rate <= bound then return i - 1 end
    end
end

-- Statistics of all finished groups, flat ones too, under the step that is claimed next.
local function note_outcome(run, source, pass_rate, samples, tokens)
    local outcomes = key(run, 'outcomes', run.next)
    redis.call('HINCRBY', outcomes, 'rate:' .. source .. ':' .. bucket(pass_rate), 1)
    redis.call('HINCRBY', outcomes, 'samples', samples)
    redis.call('HINCRBY', outcomes, 'tokens', tokens)
end

-- A copy that comes after the group's end, or after another copy, is no group of its own.
local function late(run, id, group, attempt)
    local won = group and (group[PLACE] == PENDING or group[PLACE] == CLAIMED or group[PLACE] == TRAINED
        or group[PLACE] == REJECTED) and group[ATTEMPT] == attempt
    if not (won and group[BODY]) then redis.call('UNLINK', body_key(run, id, attempt)) end
    return { won and 'accepted' or group and 'duplicate' or 'unknown', '' }
end

-- Whether a group leased at its STEP may instead have the older `step` as its oldest.
local function room_to_age(run, group, step)
    for version = step, group[STEP] - 1 do
        if capacity(run, group[STAGE], run.next, version + run.staleness)
            - unclaimed(run, group[STAGE], version) < 1 then return false end
    end
    return true
end

local function refuse(run, id, group, attempt, reason, tokens)
    redis.call('UNLINK', body_key(run, id, attempt))
    drop(run, id, group, reason, tokens)
    ring(run, 'room', reason)
    ring(run, 'work', reason)
    return { 'refused', reason }
end

-- ARGV: incarnation, group, attempt, history, standing, until epoch, pass rate, samples, tokens, then for a push:
-- oldest lineage, oldest step, newest lineage, newest step, summary, and the body if it was not set beside the
-- call. Without all of these the group was flat: a reject.
local function finished(keys, args)
    local run, id, attempt, tokens = load_run(keys, args), args[2], args[3], tonumber(args[9])
    local group = read_group(run, id)
    if not group or group[PLACE] ~= FLYING then return late(run, id, group, attempt) end
    if args[10] then
        local oldest = tonumber(args[11])
        local newest = tonumber(args[13])
        local one_version = args[10] == args[12] and oldest == newest
        if not (valid(run, args[12], newest) and (one_version or valid(run, args[10], oldest))) then
            return refuse(run, id, group, attempt, 'invalid lineage', tokens)
        elseif oldest + run.staleness < run.next then
            return refuse(run, id, group, attempt, 'stale', tokens)
        elseif not room_to_age(run, group, oldest) then -- another copy is at work on fresher weights
            redis.call('UNLINK', body_key(run, id, attempt))
            return { 'duplicate', '' }
        end
        forget_work(run, id, group)
        group[STEP], group[LINEAGE], group[NEWEST], group[BODY] = oldest, tonumber(args[12]), newest, true
        group[PLACE], group[ATTEMPT] = PENDING, attempt
        write_group(run, id, group)
        if args[15] then redis.call('SET', body_key(run, id, attempt), args[15]) end
        redis.call('HSET', run.summaries, id, args[14])
        local arrival = count(run, 'pushed') % SLOT
        redis.call('ZADD', pending(run, group[STAGE]), string.format('%.0f', oldest * SLOT + arrival), id)
    else
        group[ATTEMPT] = attempt
        finish(run, id, group, REJECTED)
        local flat = redis.call('HINCRBY', run.control, 'flat_in_a_row', 1)
        local limit = run.reject_limit * batch_of(run, stage_of(run, run.next))
        if flat >= limit and not run.stopping then
            redis.call('HSET', run.control, 'stopping', 'data exhausted')
            ring(run, 'room', 'stop')
        end
    end
    note_outcome(run, group[SOURCE], tonumber(args[7]), tonumber(args[8]), tokens)
    report(run, id, group, args[4], args[5], tonumber(args[6]))
    ring(run, 'work', id)
    return { 'accepted', '' }
end

redis.register_function { function_name = 'magicrl_v1_finished', flags = { 'allow-oom' }, callback = finished }
redis.register_function { function_name = 'magicrl_v1_push', callback = finished } -- with a body: not above the limit

-- ARGV: incarnation, group, attempt, reason, tokens.
redis.register_function {
    function_name = 'magicrl_v1_drop', flags = { 'allow-oom' },
    callback = function(keys, args)
        local run, id = load_run(keys, args), args[2]
        local group = read_group(run, id)
        if not group or group[PLACE] ~= FLYING or group[ATTEMPT] ~= args[3] then return 0 end
        drop(run, id, group, args[4], tonumber(args[5]))
        ring(run, 'room', args[4])
        ring(run, 'work', args[4])
        return 1
    end,
}

local function lose(run, id, group)
    redis.call('ZADD', run.lost, group[STEP], id)
    group[ACTOR] = ''
    write_group(run, id, group)
    count(run, 'leases_lost')
end

-- ARGV: incarnation, actor, then per group its id and a number that grows while it is worked on.
-- Returns the groups that the actor no longer holds.
redis.register_function {
    function_name = 'magicrl_v1_heartbeat', flags = { 'allow-oom' },
    callback = function(keys, args)
        local run, gone = load_run(keys, args), {}
        local beat = redis.call('HINCRBY', key(run, 'beats'), args[2], 1)
        for i = 3, #args, 2 do
            local group = read_group(run, args[i])
            if group and group[PLACE] == FLYING and group[ACTOR] == args[2] then
                redis.call('HSET', run.progress, args[i], args[i + 1] .. ':' .. beat)
            else
                gone[#gone + 1] = args[i]
            end
        end
        return gone
    end,
}

-- ARGV: incarnation, then per lease its group and attempt. Their groups keep their places and are reissued.
redis.register_function {
    function_name = 'magicrl_v1_lose', flags = { 'allow-oom' },
    callback = function(keys, args)
        local run, lost = load_run(keys, args), 0
        for i = 2, #args, 2 do
            local group = read_group(run, args[i])
            if group and group[PLACE] == FLYING and group[ACTOR] ~= '' and group[ATTEMPT] == args[i + 1] then
                lose(run, args[i], group)
                lost = lost + 1
            end
        end
        if lost > 0 then ring(run, 'room', 'reissue') end
        return lost
    end,
}
