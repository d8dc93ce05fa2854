"""Loads the Go library of its first argument, starts five goroutines in it, and calls into it on another thread."""

import ctypes
import sys
import threading

library = ctypes.CDLL(sys.argv[1])
library.Park(5)
thread = threading.Thread(target=library.Block, daemon=True)
thread.start()
print("ready", flush=True)
sys.stdin.read()
