"""Go programs, read from outside: their goroutines, and how they were built."""
