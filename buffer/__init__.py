"""What passes between the generators and the learner: rollouts, weights and the rules of their exchange."""
