"""What the tests share: targets, the command line, profiles, oracles."""
