-- What generators tell of the groups they hold: finished, flat, given up, still at work.

local BUCKETS = { 0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 0.999, 1 } -- upper bounds of a pass rate

local function bucket(rate)
    for i, bound in ipairs(BUCKETS) do
        if rate <= bound then return i - 1 end
    end
end

-- A finished group comes as a msgpack array with these positions; a flat one ends with its tokens.
local ID, COPY, HISTORY, STANDING, UNTIL_EPOCH, PASS_RATE, SAMPLES, TOKENS = 1, 2, 3, 4, 5, 6, 7, 8
local OLDEST_LINEAGE, OLDEST, NEWEST_LINEAGE, NEWEST_STEP, SUMMARY = 9, 10, 11, 12, 13

-- What finished groups tell of themselves and their prompts, flat ones too; written at once for all of them.
local function new_reports() return { histories = {}, outcomes = { samples = 0, tokens = 0 } } end

local function report(run, reports, word, source)
    local prompt, outcomes = string.match(word[ID], '^%d+%.(%d+)%.'), reports.outcomes
    local histories, rate = reports.histories, 'rate:' .. source .. ':' .. bucket(word[PASS_RATE])
    histories[#histories + 1], histories[#histories + 2] = prompt, word[HISTORY]
    outcomes[rate] = (outcomes[rate] or 0) + 1
    outcomes.samples, outcomes.tokens = outcomes.samples + word[SAMPLES], outcomes.tokens + word[TOKENS]
    judge(run, prompt, source, word[STANDING], word[UNTIL_EPOCH])
end

-- Outcomes are kept under the step that is claimed next.
local function write_reports(run, reports)
    if #reports.histories == 0 then return end
    bulk('HSET', reports.histories, key(run, 'history'))
    for name, number in pairs(reports.outcomes) do
        redis.call('HINCRBY', key(run, 'outcomes', run.next), name, number)
    end
end

local ACCEPTED = { 'accepted', '' }

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

-- Why a pushed group cannot be trained on; nil if it can.
local function unfit(run, word)
    if not (valid(run, word[NEWEST_LINEAGE], word[NEWEST_STEP]) and valid(run, word[OLDEST_LINEAGE], word[OLDEST])) then
        return 'invalid lineage'
    elseif word[OLDEST] + run.staleness < run.next then
        return 'stale'
    end
end

-- One group of a push. Places change at once, for admission counts them; `batch` collects the rest.
local function push_one(run, batch, word, group)
    local id, attempt = word[ID], word[COPY]
    if not group or group[PLACE] ~= FLYING then return late(run, id, group, attempt) end
    local reason = unfit(run, word)
    if reason then return refuse(run, id, group, attempt, reason, word[TOKENS]) end
    if not room_to_age(run, group, word[OLDEST]) then -- another copy is at work on fresher weights
        redis.call('UNLINK', body_key(run, id, attempt))
        return { 'duplicate', '' }
    end
    leave_place(run, id, group)
    group[STEP], group[LINEAGE], group[NEWEST] = word[OLDEST], word[NEWEST_LINEAGE], word[NEWEST_STEP]
    group[PLACE], group[ATTEMPT], group[BODY] = PENDING, attempt, true
    local n = #batch.ids + 1
    local arrival = (batch.pushed + n) % SLOT
    redis.call('ZADD', pending(run, group[STAGE]), string.format('%.0f', word[OLDEST] * SLOT + arrival), id)
    batch.ids[n], batch.groups[n] = id, group
    batch.summaries[2 * n - 1], batch.summaries[2 * n] = id, word[SUMMARY]
    report(run, batch.reports, word, group[SOURCE])
    return ACCEPTED
end

local function write_batch(run, batch)
    if #batch.ids == 0 then return end
    write_groups(run, batch.ids, batch.groups)
    bulk('HSET', batch.summaries, run.summaries)
    bulk('HDEL', batch.ids, run.progress)
    write_reports(run, batch.reports)
    count(run, 'pushed', #batch.ids)
    ring(run, 'work', 'push')
end

-- ARGV: incarnation, then the words of each group; their bodies were set in the same transaction. Not above the memory
-- limit. Returns outcome and reason of each.
define('push', function(run, args)
    local words, ids, known, replies = {}, {}, {}, {}
    for i = 2, #args do
        words[i - 1] = cmsgpack.unpack(args[i])
        ids[i - 1] = words[i - 1][ID]
    end
    local batch = { ids = {}, groups = {}, summaries = {}, reports = new_reports(),
        pushed = tonumber(redis.call('HGET', run.books, 'pushed') or '0') }
    local groups = read_groups(run, ids)
    for i, id in ipairs(ids) do
        known[id] = known[id] or groups[i] -- two copies of a group share its record
        replies[i] = push_one(run, batch, words[i], known[id])
    end
    write_batch(run, batch)
    return replies
end, {})

-- ARGV: incarnation, words. The group was flat.
define('reject', function(run, args)
    local word, reports = cmsgpack.unpack(args[2]), new_reports()
    local id, group = word[ID], read_group(run, word[ID])
    if not group or group[PLACE] ~= FLYING then return late(run, id, group, word[COPY]) end
    group[ATTEMPT] = word[COPY]
    finish(run, id, group, REJECTED)
    local flat = redis.call('HINCRBY', run.control, 'flat_in_a_row', 1)
    if flat >= run.reject_limit * batch_of(run, stage_of(run, run.next)) and not run.stopping then
        redis.call('HSET', run.control, 'stopping', 'data exhausted')
        ring(run, 'room', 'stop')
    end
    report(run, reports, word, group[SOURCE])
    write_reports(run, reports)
    ring(run, 'work', id)
    return ACCEPTED
end)

-- ARGV: incarnation, group, attempt, reason, tokens.
define('drop', function(run, args)
    local id = args[2]
    local group = read_group(run, id)
    if not group or group[PLACE] ~= FLYING or group[ATTEMPT] ~= args[3] then return 0 end
    drop(run, id, group, args[4], tonumber(args[5]))
    ring(run, 'room', args[4])
    ring(run, 'work', args[4])
    return 1
end)

local function lose(run, id, group)
    redis.call('ZADD', run.lost, group[STEP], id)
    group[ACTOR] = ''
    write_group(run, id, group)
    count(run, 'leases_lost')
end

-- ARGV: incarnation, actor, then per group its id and a number that grows while it is worked on.
-- Returns the groups that the actor no longer holds.
define('heartbeat', function(run, args)
    local ids, progress, gone = {}, {}, {}
    for i = 3, #args, 2 do ids[#ids + 1] = args[i] end
    local beat = redis.call('HINCRBY', key(run, 'beats'), args[2], 1)
    for i, group in ipairs(read_groups(run, ids)) do
        if group and group[PLACE] == FLYING and group[ACTOR] == args[2] then
            progress[#progress + 1], progress[#progress + 2] = ids[i], args[2 * i + 2] .. ':' .. beat
        else
            gone[#gone + 1] = ids[i]
        end
    end
    bulk('HSET', progress, run.progress)
    return gone
end)

-- ARGV: incarnation, then per lease its group and attempt. Their groups keep their places and are reissued.
define('lose', function(run, args)
    local lost = 0
    for i = 2, #args, 2 do
        local group = read_group(run, args[i])
        if group and group[PLACE] == FLYING and group[ACTOR] ~= '' and group[ATTEMPT] == args[i + 1] then
            lose(run, args[i], group)
            lost = lost + 1
        end
    end
    if lost > 0 then ring(run, 'room', 'reissue') end
    return lost
end)
