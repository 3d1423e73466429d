-- What the learner does: claim a batch, commit it, tell of checkpoints. All of it is fenced by lineage.

local function claim_key(run, step) return key(run, 'claim', step) end
local function trained_key(run, step) return key(run, 'trained', step) end

-- In-flight groups that must arrive before `step` may be claimed: how many, and from which version or before.
local function overdue(run, stage, need)
    for version = run.next - run.staleness, run.next do
        local ready = pending_until(run, stage, version)
        local excess = unclaimed(run, stage, version) - math.min(need, ready)
            - capacity(run, stage, run.next + 1, version + run.staleness)
        if excess > 0 then return excess, version end
    end
    return 0, -1
end

local function claimed_row(run, id, group)
    return { id, group[ATTEMPT], redis.call('HGET', run.summaries, id) or '' }
end

local KEEP_ENDED = 4 -- steps for which an ended group still answers late copies, beyond the staleness bound

local function forget_ended(run)
    local old = key(run, 'ended', run.next - run.staleness - KEEP_ENDED)
    for _, id in ipairs(redis.call('LRANGE', old, 0, -1)) do redis.call('HDEL', run.groups, id) end
    redis.call('DEL', old, key(run, 'outcomes', run.next - 64))
end

local function take(run, stage, need)
    local popped, ids, answer = redis.call('ZPOPMIN', pending(run, stage), need), {}, { 'claimed' }
    for i = 1, #popped, 2 do
        local id = popped[i]
        local group = read_group(run, id)
        group[PLACE] = CLAIMED
        write_group(run, id, group)
        ids[#ids + 1] = id
        answer[#answer + 1] = claimed_row(run, id, group)
    end
    append(claim_key(run, run.next), ids)
    return answer
end

local function take_again(run, ids)
    local answer = { 'claimed' }
    for _, id in ipairs(ids) do answer[#answer + 1] = claimed_row(run, id, read_group(run, id)) end
    return answer
end

-- The learner says again what it announced, in case this Redis forgot.
local function announce(run, version)
    if version ~= '' and redis.call('HGET', run.control, 'announced') ~= version then
        redis.call('HSET', run.control, 'announced', version)
        ring(run, 'room', 'announce')
    end
end

-- ARGV: incarnation, lineage, step, version announced last ('' if none). A repeated claim gets its first answer.
-- 'behind' tells that this Redis forgot claims and commits.
redis.register_function {
    function_name = 'magicrl_v1_claim', flags = { 'allow-oom' },
    callback = function(keys, args)
        local run, step = load_run(keys, args), tonumber(args[3])
        fence(run, args[2])
        local held = redis.call('LRANGE', claim_key(run, step), 0, -1)
        if #held > 0 then return take_again(run, held) end
        if step > run.next then return { 'behind', run.next } end
        if step < run.next then fail('STEP', 'step ' .. run.next .. ' is claimed next, not ' .. step) end
        announce(run, args[4])
        local stage = stage_of(run, step)
        local need = batch_of(run, stage)
        local have = redis.call('ZCARD', pending(run, stage))
        local late_ones, version = overdue(run, stage, need)
        if have < need or late_ones > 0 then
            return { 'short', have, need, redis.call('ZCARD', flying(run, stage)), late_ones, version }
        end
        forget_ended(run)
        local answer = take(run, stage, need)
        redis.call('HSET', run.control, 'next', step + 1, 'flat_in_a_row', 0)
        ring(run, 'room', 'claim')
        return answer
    end,
}

-- ARGV: incarnation, lineage, step. What has kept the claim waiting too long is dropped; returns how many.
redis.register_function {
    function_name = 'magicrl_v1_drop_stragglers', flags = { 'allow-oom' },
    callback = function(keys, args)
        local run, dropped = load_run(keys, args), 0
        fence(run, args[2])
        if tonumber(args[3]) ~= run.next then return 0 end
        local stage = stage_of(run, run.next)
        local excess, version = overdue(run, stage, batch_of(run, stage))
        while excess > 0 do
            local ids = redis.call('ZRANGEBYSCORE', flying(run, stage), '-inf', version, 'LIMIT', 0, excess)
            if #ids == 0 then break end
            for _, id in ipairs(ids) do drop(run, id, read_group(run, id), 'straggler deadline') end
            dropped = dropped + #ids
            excess, version = overdue(run, stage, batch_of(run, stage))
        end
        if dropped > 0 then ring(run, 'room', 'straggler deadline') end
        return dropped
    end,
}

-- Back to pending, with its old deadline.
local function give_back(run, id, group)
    group[PLACE] = PENDING
    write_group(run, id, group)
    redis.call('ZADD', pending(run, group[STAGE]), string.format('%.0f', group[STEP] * SLOT), id)
end

-- A restore may want the body again: its newest token is no newer than a checkpoint begun.
local function may_return(run, group)
    return group[NEWEST] <= tonumber(redis.call('HGET', run.control, 'begun') or '0')
end

local function train(run, id, group)
    forget_work(run, id, group)
    if not may_return(run, group) then delete_body(run, id, group) end
    group[PLACE] = TRAINED
    write_group(run, id, group)
end

local function note_trained(run, ids, step)
    append(trained_key(run, step), ids)
    count(run, TRAINED, #ids)
end

-- A group that was trained though this Redis forgot its lease: it is booked again.
local function unknown(run)
    count(run, 'started')
    return { CLAIMED, stage_of(run, run.next), 0, '', '', '', 0, math.huge, false }
end

local UNTRAINED = { [FLYING] = true, [PENDING] = true, [CLAIMED] = true }

-- ARGV: incarnation, lineage, step, then the ids that were trained, as the learner knows them: a Redis that lost
-- its last second may have forgotten the claim. Wherever a group stands, it is trained now.
redis.register_function {
    function_name = 'magicrl_v1_commit', flags = { 'allow-oom' },
    callback = function(keys, args)
        local run, step = load_run(keys, args), tonumber(args[3])
        fence(run, args[2])
        local ids, trained = redis.call('LRANGE', claim_key(run, step), 0, -1), {}
        for i = 4, #args do ids[#ids + 1] = args[i] end
        for _, id in ipairs(ids) do
            local group = read_group(run, id) or unknown(run)
            if UNTRAINED[group[PLACE]] then
                train(run, id, group)
                trained[#trained + 1] = id
            end
        end
        note_trained(run, trained, step)
        redis.call('DEL', claim_key(run, step))
        if run.next <= step then redis.call('HSET', run.control, 'next', step + 1) end
        ring(run, 'room', 'commit')
        return 1
    end,
}

-- ARGV: incarnation, lineage, step, then pairs (id, reason or 'trained'). Undoes the claim: those named end as
-- said (corrupt body, trained already), the others are pending again and `step` is claimed anew.
redis.register_function {
    function_name = 'magicrl_v1_unclaim', flags = { 'allow-oom' },
    callback = function(keys, args)
        local run, step = load_run(keys, args), tonumber(args[3])
        fence(run, args[2])
        if redis.call('EXISTS', claim_key(run, step)) == 0 then return 0 end
        local ends = {}
        for i = 4, #args, 2 do ends[args[i]] = args[i + 1] end
        for _, id in ipairs(redis.call('LRANGE', claim_key(run, step), 0, -1)) do
            local group = read_group(run, id)
            if ends[id] == TRAINED then
                train(run, id, group)
                note_trained(run, { id }, step - 1)
            elseif ends[id] then
                drop(run, id, group, ends[id], 0)
            else
                give_back(run, id, group)
            end
        end
        redis.call('DEL', claim_key(run, step))
        redis.call('HSET', run.control, 'next', step)
        return 1
    end,
}

-- ARGV: incarnation, lineage, step of the checkpoint that is being written.
redis.register_function {
    function_name = 'magicrl_v1_checkpoint_begun', flags = { 'allow-oom' },
    callback = function(keys, args)
        local run = load_run(keys, args)
        fence(run, args[2])
        return redis.call('HSET', run.control, 'begun', args[3])
    end,
}

-- What was trained from step `from` to before `to` is in a checkpoint: no restore can want it back.
local function forget_durable(run, from, to)
    for step = from, to - 1 do
        for _, id in ipairs(redis.call('LRANGE', trained_key(run, step), 0, -1)) do
            local group = read_group(run, id)
            if group then delete_body(run, id, group) end
            redis.call('HDEL', run.groups, id)
        end
        redis.call('DEL', trained_key(run, step))
    end
end

-- Bodies of groups trained since that the checkpoint at `step` could not use.
local function trim_bodies(run, step)
    for later = step, run.next - 1 do
        for _, id in ipairs(redis.call('LRANGE', trained_key(run, later), 0, -1)) do
            local group = read_group(run, id)
            if group and group[BODY] and not may_return(run, group) then
                delete_body(run, id, group)
                write_group(run, id, group)
            end
        end
    end
end

-- ARGV: incarnation, lineage, step. What was trained before `step` is durable.
redis.register_function {
    function_name = 'magicrl_v1_checkpoint_durable', flags = { 'allow-oom' },
    callback = function(keys, args)
        local run, step = load_run(keys, args), tonumber(args[3])
        fence(run, args[2])
        forget_durable(run, tonumber(redis.call('HGET', run.control, 'durable')), step)
        redis.call('HSET', run.control, 'durable', step, 'begun', step)
        trim_bodies(run, step)
        return 1
    end,
}

-- ARGV: incarnation, lineage, step. Announces the newest weights.
redis.register_function {
    function_name = 'magicrl_v1_announce', flags = { 'allow-oom' },
    callback = function(keys, args)
        local run = load_run(keys, args)
        fence(run, args[2])
        announce(run, args[2] .. '.' .. args[3])
        return 1
    end,
}
