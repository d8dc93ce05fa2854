"""Every code object of many modules: first line, table in hex, and what PyCode_Addr2Line says of every instruction."""
import ctypes, sys, types
import argparse, ast, asyncio, collections, dataclasses, datetime, decimal, difflib, dis, email, http.client, inspect  # noqa
import json, logging, os, pathlib, pickle, random, re, shutil, socket, statistics, string, subprocess, tarfile  # noqa
import tempfile, textwrap, threading, tokenize, traceback, types, typing, unittest, urllib.request, zipfile  # noqa

line_of = ctypes.pythonapi.PyCode_Addr2Line
line_of.argtypes = [ctypes.py_object, ctypes.c_int]
line_of.restype = ctypes.c_int
seen = set()


def show(code):
    if code in seen:
        return
    seen.add(code)
    table = code.co_linetable if sys.version_info >= (3, 10) else code.co_lnotab
    runs, last = [], None
    for offset in range(0, len(code.co_code), 2):
        line = line_of(code, offset)
        if line != last:
            runs.append("%d:%d" % (offset, max(line, 0)))
            last = line
    print(code.co_firstlineno, table.hex() or "-", len(code.co_code), ",".join(runs))
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            show(constant)


for module in list(sys.modules.values()):
    path = getattr(module, "__file__", None) or ""
    if path.endswith(".py"):
        with open(path, "rb") as file:
            show(compile(file.read(), path, "exec"))
print("end")
