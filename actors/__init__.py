"""Who makes rollouts: generators around a sampling engine, and the fleet they form."""
