#!/usr/bin/env bash
# A run on Slurm. The first node has Redis, the Ray head and the driver; learner nodes and generator nodes follow.
#   sbatch --nodes=5 ops/deploy/slurm.sh my_run.yaml
# A job that is preempted or times out is requeued and continues its newest checkpoint.
#SBATCH --job-name=magicrl
#SBATCH --nodes=5
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:TERM@600
#SBATCH --output=magicrl-%j.log
set -euo pipefail

config=${1:?usage: sbatch slurm.sh CONFIG [key=value ...]}
shift
learners=${LEARNER_NODES:-1}
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${nodes[0]}
scratch=$PWD/slurm-$SLURM_JOB_ID
mkdir -p "$scratch"
chmod 700 "$scratch"

# Secrets of this job, readable only by its owner: Ray and Redis execute what they receive.
umask 077
[ -s "$scratch/token" ] || openssl rand -hex 32 >"$scratch/token"
[ -s "$scratch/password" ] || openssl rand -hex 24 >"$scratch/password"
[ -s "$scratch/metrics" ] || openssl rand -hex 24 >"$scratch/metrics"
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=$scratch/token

on() { # on NODE COMMAND...: run it in the background until the job ends
    srun --nodes=1 --ntasks=1 --overlap --nodelist="$1" "${@:2}" &
}

printf 'requirepass %s\n' "$(cat "$scratch/password")" >"$scratch/redis.conf"
on "$head" redis-server "$scratch/redis.conf" --port 6380 --bind '*' --dir "$scratch" --appendonly yes \
    --maxmemory "${REDIS_MEMORY:-32gb}" --maxmemory-policy noeviction
on "$head" ray start --head --block --port=6379 --dashboard-host=127.0.0.1
for ((i = 1; i < ${#nodes[@]}; i++)); do
    if ((i <= learners)); then
        on "${nodes[i]}" ray start --block --address="$head:6379" --resources='{"learner": 8}'
    else
        on "${nodes[i]}" ray start --block --address="$head:6379" --resources='{"generator": 8}'
    fi
done

# Slurm signals only this script, which passes it on: the driver writes a checkpoint and ends, the job is requeued.
srun --nodes=1 --ntasks=1 --overlap --nodelist="$head" magicrl train "$config" --resume=auto \
    ray.address="$head:6379" buffer.redis.url="redis://$head:6380/0" \
    buffer.redis.password_file="$scratch/password" buffer.weights.root="$scratch/weights" \
    learner.resources.learner=1 actors.resources.generator=1 actors.num_gpus=1 \
    metrics.host=0.0.0.0 metrics.token_file="$scratch/metrics" "$@" &
driver=$!
ended_early=
trap 'ended_early=1; kill -TERM "$driver"' TERM
status=0
wait "$driver" || status=$?
if [ "$ended_early" ]; then # the signal interrupted the wait; the driver is still writing its checkpoint
    status=0
    wait "$driver" || status=$?
fi
case $status$ended_early in
0) rm -rf "$scratch" ;;
2*) echo "the configuration is wrong: not requeued" >&2 ;;
*) scontrol requeue "$SLURM_JOB_ID" ;;
esac
kill $(jobs -p) 2>/dev/null || true
exit "$status"
