-- Functions that write nothing: any role may call them.

-- Returns the number of groups in flight, pending and claimed, counted where they are, and the counters of the rest.
define_view('books', function(run, args)
    local in_flight, ready, claimed = 0, 0, 0
    for stage = 0, stage_count(run) - 1 do
        in_flight = in_flight + redis.call('ZCARD', in_flight_key(run, stage))
        ready = ready + redis.call('ZCARD', pending_key(run, stage))
    end
    for step = math.max(0, run.next - 2), run.next do
        claimed = claimed + redis.call('LLEN', claim_key(run, step))
    end
    return { in_flight, ready, claimed, redis.call('HGETALL', run.books) }
end)

-- Returns the ids of all groups that are in flight, pending or claimed.
define_view('live', function(run, args)
    local live = {}
    local places = {}
    for stage = 0, stage_count(run) - 1 do
        places[#places + 1] = redis.call('ZRANGE', in_flight_key(run, stage), 0, -1)
        places[#places + 1] = redis.call('ZRANGE', pending_key(run, stage), 0, -1)
    end
    for step = math.max(0, run.next - 2), run.next do
        places[#places + 1] = redis.call('LRANGE', claim_key(run, step), 0, -1)
    end
    for _, ids in ipairs(places) do
        for _, id in ipairs(ids) do live[#live + 1] = id end
    end
    return live
end)

-- Returns the summary of the pending group with the earliest deadline, or nothing.
define_view('oldest_ready', function(run, args)
    local oldest, summary = math.huge, false
    for stage = 0, stage_count(run) - 1 do
        local id = redis.call('ZRANGE', pending_key(run, stage), 0, 0)[1]
        local group = id and read_group(run, id)
        if group and group[STEP] < oldest then
            oldest, summary = group[STEP], redis.call('HGET', run.summaries, id)
        end
    end
    return summary
end)

-- Returns every active lease: group, attempt, actor, "progress:beat" ('' before the first heartbeat), step, stage.
define_view('leases', function(run, args)
    local leases = {}
    for stage = 0, stage_count(run) - 1 do
        for _, id in ipairs(redis.call('ZRANGE', in_flight_key(run, stage), 0, -1)) do
            local group = read_group(run, id)
            if group[ACTOR] ~= '' then
                leases[#leases + 1] = { id, group[ATTEMPT], group[ACTOR],
                    redis.call('HGET', run.progress, id) or '', group[STEP], stage }
            end
        end
    end
    return leases
end)
