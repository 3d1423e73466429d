"""Where each command of the documentation is run."""

from __future__ import annotations

START = "magicrl train my_run.yaml"
LIVE = (
    "magicrl runs",
    "magicrl fleet --run my_run",
    "magicrl fleet --run my_run --json",
    "magicrl buffer stats my_run",
    "magicrl buffer groups my_run --place pending",
    "magicrl buffer prompts my_run --hardest",
    "magicrl buffer acl my_run",
    "magicrl rollouts my_run --verdict wrong --longest",
    "magicrl dashboards export dashboards",
)
STOP = "magicrl stop my_run"
AFTER = (
    "magicrl export my_run my_model",
    "magicrl score answers.jsonl",
    "magicrl score answers.jsonl --output scores.jsonl",
    "magicrl config list",
    "magicrl config show quickstart",
    "magicrl doctor my_run.yaml",
)
"""START, LIVE, STOP and AFTER are run as they are, in this order, by system/test_documented_commands.py."""

ON_A_LIVE_RUN = "system/test_documented_commands.py::test_commands_on_a_live_run_that_loses_a_generator"
JOINS = "actors/test_external.py::test_weights_are_downloaded_and_gone_when_it_leaves"
JOINS_AND_DRAINS = (
    "faults/test_generator_standalone.py::"
    "test_it_joins_drains_on_sigterm_and_another_one_that_is_killed_leaves_no_engine"
)
EVALUATES = "actors/test_evaluator.py::test_the_command_evaluates_a_model_folder"
CHECK = "ops/test_data_command.py"
DETACHED = "ops/test_runs.py::test_detached_it_outlives_its_parent"
BENCH = "ops/test_bench_command.py"
DEPLOY = "ops/test_deploy_kubernetes.py"
SLURM = "ops/test_deploy_slurm.py::test_slurm_places_learner_and_generators_on_their_nodes"

ELSEWHERE = {
    "magicrl train my_run.yaml learner.lr=2e-6": "ops/test_config.py::test_scientific_notation_is_a_number",
    "magicrl train my_run.yaml --resume": "system/test_loop.py::test_on_policy_interrupted_and_resumed",
    "magicrl train my_run.yaml --resume=auto": "ops/test_folder.py::test_auto_starts_afresh_or_continues",
    "magicrl train my_run.yaml --detach": DETACHED,
    "magicrl train my_run.yaml --detach --resume=auto ray.address=auto "
    "buffer.redis.url=redis://redis:6379/0": DETACHED,
    "magicrl train my_run.yaml --resume=auto ray.address=HEAD:6379 learner.resources.learner=1 "
    "actors.resources.generator=1 actors.num_gpus=1 buffer.redis.url=redis://HEAD:6380/0 "
    "buffer.redis.password_file=secrets/redis buffer.weights.root=/shared/weights "
    "metrics.host=0.0.0.0 metrics.port=9464 metrics.token_file=secrets/metrics": (
        f"{DEPLOY}::test_the_job_starts_a_run_with_settings_that_exist"
    ),
    "magicrl quickstart run.seed=1 buffer.max_staleness=0": (
        "system/test_loop.py::test_on_policy_interrupted_and_resumed"
    ),
    "magicrl scale --generators 4 --run my_run": (
        "actors/test_fleet.py::test_scale_up_and_down_while_weights_arrive"
    ),
    "magicrl generator --run my_run --redis redis://host:6379/0 --password-file redis.pass": JOINS_AND_DRAINS,
    "magicrl generator --run my_run --redis redis://host:6379/0 --weights http://host:8300": JOINS,
    "magicrl top my_run": "ops/test_top.py::test_a_recorded_run_is_shown",
    "magicrl eval my_run data/test.parquet --k 32": EVALUATES,
    "magicrl eval my_model data/test.parquet --k 32": EVALUATES,
    "magicrl buffer show my_run 0.17.0": "buffer/test_inspection.py::test_groups_and_prompts_and_one_group",
    "magicrl buffer purge my_run": (
        "buffer/test_inspection.py::test_purge_takes_one_run_and_leaves_the_others"
    ),
    "magicrl dashboards push --url https://grafana.example.org": (
        "ops/test_dashboards_push.py::test_the_command_pushes_and_reports"
    ),
    "magicrl bench buffer --json": "ops/test_bench_buffer.py::test_both_sides_pass_the_same_groups",
    "magicrl bench generators": f"{BENCH}::test_every_module_that_measures_is_listed",
    "magicrl bench learner --json": f"{BENCH}::test_the_json_is_flat",
    "magicrl bench metrics --json": ("ops/test_bench_metrics.py::test_the_share_is_that_of_a_recorded_step"),
    "magicrl bench rewards": f"{BENCH}::test_every_module_that_measures_is_listed",
    "magicrl bench weights": f"{BENCH}::test_every_module_that_measures_is_listed",
    "magicrl data check data/train.parquet": f"{CHECK}::test_answers_are_read_sampled_and_graded",
    "magicrl data check data/train.parquet --config my_run.yaml": (
        f"{CHECK}::test_the_config_says_how_rows_are_read_and_rendered"
    ),
    "magicrl data check data/train.parquet --solutions": f"{CHECK}::test_programs_are_graded_in_the_sandbox",
    "magicrl data check data/train.parquet --limit 500 --json": (
        f"{CHECK}::test_programs_are_graded_in_the_sandbox"
    ),
    "prometheus --config.file=runs/my_run/prometheus.yml": ON_A_LIVE_RUN,
    "tensorboard --logdir runs": "ops/test_tracker_process.py::test_tensorboard_shows_every_number",
    "ray start --head --dashboard-host=127.0.0.1": SLURM,
    "ray start --address=HEAD:6379 '--resources={\"learner\": 8}'": SLURM,
    "ray start --address=HEAD:6379 '--resources={\"generator\": 8}'": SLURM,
    "sbatch --nodes=5 slurm.sh my_run.yaml": SLURM,
}
"""Command: the test that runs it, with other arguments or a stand-in for what a test machine lacks."""
