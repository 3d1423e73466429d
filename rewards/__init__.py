"""What an answer is worth: graders, the sandbox they run programs in, and traits of a response."""
