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

local function claimed(run, ids, groups)
    local answer, summaries = { 'claimed' }, read_fields(run.summaries, ids)
    for i, id in ipairs(ids) do answer[i + 1] = { id, groups[i][ATTEMPT], summaries[i] or '' } end
    return answer
end

local KEEP_ENDED = 4 -- steps for which an ended group still answers late copies, beyond the staleness bound

local function forget_ended(run)
    local old = key(run, 'ended', run.next - run.staleness - KEEP_ENDED)
    bulk('HDEL', redis.call('LRANGE', old, 0, -1), run.groups)
    redis.call('DEL', old, key(run, 'outcomes', run.next - 64))
end

local function take(run, stage, need)
    local popped, ids = redis.call('ZPOPMIN', pending(run, stage), need), {}
    for i = 1, #popped, 2 do ids[#ids + 1] = popped[i] end
    local groups = read_groups(run, ids)
    for _, group in ipairs(groups) do group[PLACE] = CLAIMED end
    write_groups(run, ids, groups)
    bulk('RPUSH', ids, claim_key(run, run.next))
    return claimed(run, ids, groups)
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
define_learner('claim', function(run, step, args)
    local held = redis.call('LRANGE', claim_key(run, step), 0, -1)
    if #held > 0 then return claimed(run, held, read_groups(run, held)) end
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
end)

-- ARGV: incarnation, lineage, step. What has kept the claim waiting too long is dropped; returns how many.
define_learner('drop_stragglers', function(run, step, args)
    local dropped = 0
    if step ~= run.next then return 0 end
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
end)

-- Back to pending, with its old deadline.
local function give_back(run, id, group)
    group[PLACE] = PENDING
    write_group(run, id, group)
    redis.call('ZADD', pending(run, group[STAGE]), string.format('%.0f', group[STEP] * SLOT), id)
end

-- A restore may want the body again where its newest token is no newer than a checkpoint begun.
local function delete_useless(run, ids, groups)
    ids, groups = choose(ids, groups, function(group) return group[NEWEST] > run.begun end)
    delete_bodies(run, ids, groups)
    return ids, groups
end

-- These groups were trained at `step`.
local function train(run, step, ids, groups)
    for i, id in ipairs(ids) do
        forget_work(run, id, groups[i])
        groups[i][PLACE] = TRAINED
    end
    delete_useless(run, ids, groups)
    write_groups(run, ids, groups)
    bulk('RPUSH', ids, trained_key(run, step))
    count(run, TRAINED, #ids)
end

-- A group that was trained though this Redis forgot its lease: it is booked again.
local function unknown(run)
    count(run, 'started')
    return { CLAIMED, stage_of(run, run.next), 0, '', '', '', 0, math.huge, false }
end

-- `ids` and what `more` holds beginning at `from`, each once.
local function distinct(ids, more, from)
    local seen, all = {}, {}
    local function add(id)
        if not seen[id] then all[#all + 1] = id end
        seen[id] = true
    end
    for _, id in ipairs(ids) do add(id) end
    for i = from, #more do add(more[i]) end
    return all
end

local UNTRAINED = { [FLYING] = true, [PENDING] = true, [CLAIMED] = true }

-- ARGV: incarnation, lineage, step, then the ids that were trained, as the learner knows them: a Redis that lost
-- its last second may have forgotten the claim. Wherever a group stands, it is trained now.
define_learner('commit', function(run, step, args)
    local ids = distinct(redis.call('LRANGE', claim_key(run, step), 0, -1), args, 4)
    local groups = read_groups(run, ids)
    for i = 1, #ids do groups[i] = groups[i] or unknown(run) end
    train(run, step, choose(ids, groups, function(group) return UNTRAINED[group[PLACE]] end))
    redis.call('DEL', claim_key(run, step))
    if run.next <= step then redis.call('HSET', run.control, 'next', step + 1) end
    ring(run, 'room', 'commit')
    return 1
end)

-- ARGV: incarnation, lineage, step, then pairs (id, reason or 'trained'). Undoes the claim: those named end as
-- said (corrupt body, trained already), the others are pending again and `step` is claimed anew.
define_learner('unclaim', function(run, step, args)
    if redis.call('EXISTS', claim_key(run, step)) == 0 then return 0 end
    local ends = {}
    for i = 4, #args, 2 do ends[args[i]] = args[i + 1] end
    for _, id in ipairs(redis.call('LRANGE', claim_key(run, step), 0, -1)) do
        local group = read_group(run, id)
        if ends[id] == TRAINED then
            train(run, step - 1, { id }, { group })
        elseif ends[id] then
            drop(run, id, group, ends[id], 0)
        else
            give_back(run, id, group)
        end
    end
    redis.call('DEL', claim_key(run, step))
    redis.call('HSET', run.control, 'next', step)
    return 1
end)

-- ARGV: incarnation, lineage, step of the checkpoint that is being written.
define_learner('checkpoint_begun', function(run, step) return redis.call('HSET', run.control, 'begun', step) end)

local function is_known(group) return group end

-- What was trained from step `from` to before `to` is in a checkpoint: no restore can want it back.
local function forget_durable(run, from, to)
    for step = from, to - 1 do
        local ids = redis.call('LRANGE', trained_key(run, step), 0, -1)
        delete_bodies(run, choose(ids, read_groups(run, ids), is_known))
        bulk('HDEL', ids, run.groups)
        redis.call('DEL', trained_key(run, step))
    end
end

-- Bodies of groups trained since that the checkpoint begun last could not use.
local function trim_bodies(run)
    for step = run.begun, run.next - 1 do
        local ids = redis.call('LRANGE', trained_key(run, step), 0, -1)
        ids = choose(ids, read_groups(run, ids), function(group) return group[BODY] end)
        write_groups(run, delete_useless(run, ids, read_groups(run, ids)))
    end
end

-- ARGV: incarnation, lineage, step. What was trained before `step` is durable.
define_learner('checkpoint_durable', function(run, step)
    forget_durable(run, tonumber(redis.call('HGET', run.control, 'durable')), step)
    redis.call('HSET', run.control, 'durable', step, 'begun', step)
    run.begun = step
    trim_bodies(run)
    return 1
end)

-- ARGV: incarnation, lineage, step. Announces the newest weights.
define_learner('announce', function(run, step)
    announce(run, run.lineage .. '.' .. step)
    return 1
end)
