"""The modules of this process, the program first, as EnumProcessModulesEx and GetModuleInformation have them: [base,
size, path] each, in one line of JSON. Then it waits for the end of its input."""

import ctypes
import json
import sys
from ctypes import wintypes


class ModuleInfo(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", wintypes.DWORD), ("entry", ctypes.c_void_p))


def modules():
    kernel32, psapi = ctypes.WinDLL("kernel32"), ctypes.WinDLL("psapi")
    kernel32.GetCurrentProcess.restype = ctypes.c_void_p
    process = ctypes.c_void_p(kernel32.GetCurrentProcess())
    handles = (ctypes.c_void_p * 1024)()
    needed = wintypes.DWORD()
    LIST_MODULES_ALL = 3
    assert psapi.EnumProcessModulesEx(process, handles, ctypes.sizeof(handles), ctypes.byref(needed), LIST_MODULES_ALL)
    for handle in handles[: needed.value // ctypes.sizeof(ctypes.c_void_p)]:
        told = ModuleInfo()
        assert psapi.GetModuleInformation(process, ctypes.c_void_p(handle), ctypes.byref(told), ctypes.sizeof(told))
        path = ctypes.create_unicode_buffer(32768)
        assert psapi.GetModuleFileNameExW(process, ctypes.c_void_p(handle), path, len(path))
        yield [told.base, told.size, path.value]


print(json.dumps(list(modules())), flush=True)
sys.stdin.read()
