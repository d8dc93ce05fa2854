"""What is other on Windows: the start of the sampler process, and what is asked of a process."""
