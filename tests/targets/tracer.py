"""Traces a process until its standard input ends: tracer.py PID."""

import ctypes
import sys

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
# PTRACE_SEIZE
assert libc.ptrace(0x4206, int(sys.argv[1]), None, None) == 0, ctypes.get_errno()
print("ready", flush=True)
sys.stdin.read()
