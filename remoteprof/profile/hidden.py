"""Which native functions of an interpreter are left out between Python frames: what runs the evaluation loop, calls and
parses arguments. Every function that does work of its own stays."""

from __future__ import annotations

import re
from collections.abc import Sequence

TRAMPOLINE = "py::"
"""How CPython 3.12+ names, in a perf map or a jitdump, the code that leads to a function (-X perf, -X perf_jit)."""
CPYTHON = frozenset(
    (
        "PyEval_EvalCode",
        "PyEval_EvalCodeEx",
        "PyEval_EvalFrame",
        "PyEval_EvalFrameEx",
        "_PyEval_EvalCode",
        "_PyEval_EvalCodeWithName",
        "_PyEval_EvalFrame",
        "_PyEval_EvalFrameDefault",
        "_PyEval_Vector",
        "_PyFunction_FastCallDict",
        "_PyFunction_Vectorcall",
        "function_code_fastcall",
        "py_trampoline_evaluator",
        "PyObject_Call",
        "PyObject_CallFunction",
        "PyObject_CallFunctionObjArgs",
        "PyObject_CallMethod",
        "PyObject_CallMethodObjArgs",
        "PyObject_CallNoArgs",
        "PyObject_CallObject",
        "PyObject_CallOneArg",
        "PyObject_Vectorcall",
        "PyObject_VectorcallDict",
        "PyObject_VectorcallMethod",
        "PyVectorcall_Call",
        "PyVectorcall_Function",
        "_PyObject_Call",
        "_PyObject_CallFunction_SizeT",
        "_PyObject_CallFunctionVa",
        "_PyObject_CallMethod",
        "_PyObject_CallMethodId",
        "_PyObject_CallMethodIdNoArgs",
        "_PyObject_CallMethodIdObjArgs",
        "_PyObject_CallMethodIdOneArg",
        "_PyObject_CallNoArg",
        "_PyObject_CallNoArgs",
        "_PyObject_CallNoArgsTstate",
        "_PyObject_CallOneArg",
        "_PyObject_Call_Prepend",
        "_PyObject_FastCall",
        "_PyObject_FastCallDict",
        "_PyObject_FastCallDictTstate",
        "_PyObject_FastCallTstate",
        "_PyObject_MakeTpCall",
        "_PyObject_Vectorcall",
        "_PyObject_VectorcallDictTstate",
        "_PyObject_VectorcallTstate",
        "_PyVectorcall_Call",
        "_PyVectorcall_FunctionInline",
        "object_vacall",
        "objargs_mkstack",
        "callmethod",
        "call_function",
        "do_call_core",
        "trace_call_function",
        "_PyStack_AsDict",
        "_PyCFunction_FastCallDict",
        "_PyCFunction_FastCallKeywords",
        "_PyCFunction_Vectorcall",
        "_PyMethodDef_RawFastCallDict",
        "_PyMethodDef_RawFastCallKeywords",
        "PyCFunction_Call",
        "cfunction_call",
        "cfunction_call_varargs",
        "cfunction_enter_call",
        "_PyMethodDescr_FastCallKeywords",
        "_PyMethodDescr_Vectorcall",
        "method_enter_call",
        "method_vectorcall",
        "methoddescr_call",
        "method_call",
        "instancemethod_call",
        "classmethoddescr_call",
        "wrapper_call",
        "wrapperdescr_call",
        "wrapperdescr_raw_call",
        "call_unbound",
        "call_unbound_noarg",
        "call_method",
        "call_maybe",
        "lookup_maybe_method",
        "vectorcall_method",
        "vectorcall_maybe",
        "vectorcall_unbound",
        "type_call",
        "tp_new_wrapper",
        "wrap_init",
        "gen_send_ex",
        "gen_send_ex2",
        "gen_iternext",
        "gen_send",
        "gen_close",
        "PyGen_Send",
        "_PyGen_Send",
        "PyIter_Send",
        "vgetargs1",
        "vgetargs1_impl",
        "vgetargskeywords",
        "vgetargskeywordsfast",
        "vgetargskeywordsfast_impl",
        "convertitem",
        "convertsimple",
        "converttuple",
        "unpack_stack",
        "parser_init",
        "find_keyword",
        "_Py_CheckFunctionResult",
        "_Py_CheckSlotResult",
        "_Py_EnterRecursiveCall",
        "_Py_EnterRecursiveCallTstate",
        "_Py_LeaveRecursiveCall",
        "_Py_LeaveRecursiveCallTstate",
        "Py_BytesMain",
        "Py_Main",
        "Py_RunMain",
        "pymain_main",
        "pymain_run_command",
        "pymain_run_file",
        "pymain_run_file_obj",
        "pymain_run_module",
        "pymain_run_python",
        "pymain_run_startup",
        "pymain_run_stdin",
        "PyRun_AnyFileExFlags",
        "PyRun_SimpleFileExFlags",
        "PyRun_SimpleStringFlags",
        "PyRun_StringFlags",
        "PyRun_FileExFlags",
        "_PyRun_AnyFile",
        "_PyRun_AnyFileObject",
        "_PyRun_SimpleFile",
        "_PyRun_SimpleFileObject",
        "_PyRun_SimpleString",
        "_PyRun_SimpleStringFlagsWithName",
        "_PyRun_StringFlagsWithName",
        "pyrun_file",
        "pyrun_simple_file",
        "run_mod",
        "run_eval_code_obj",
        "run_pyc_file",
        "t_bootstrap",
        "thread_run",
        "pythread_wrapper",
        "_PyObject_FastCall_Prepend",
        "PyGen_am_send",
        "call_attribute",
        "_PyEval_MakeFrameVector",
        "_PyEvalFramePushAndInit",
        "_PyEvalFramePushAndInit_Ex",
        "_PyEvalFrameClearAndPop",
        "_PyEval_FrameClearAndPop",
        "clear_thread_frame",
        "clear_gen_frame",
        "initialize_locals",
        "_PyFrame_New_NoTrack",
        "frame_alloc",
        "_PyFrame_Clear",
        "_PyFrame_ClearExceptCode",
        "_PyFrame_ClearLocals",
        "_PyThreadState_PushFrame",
        "_PyThreadState_PopFrame",
        "push_chunk",
        "_PyStack_UnpackDict",
        "_PyStack_UnpackDict_Free",
        "_PyStack_UnpackDict_FreeNoDecRef",
        "_PyTuple_FromStackRefStealOnSuccess",
        "method_check_args",
        "_Py_CheckRecursiveCall",
        "wrap_unaryfunc",
        "wrap_binaryfunc",
        "wrap_binaryfunc_l",
        "wrap_binaryfunc_r",
        "wrap_ternaryfunc",
        "wrap_ternaryfunc_r",
        "wrap_lenfunc",
        "wrap_inquirypred",
        "wrap_indexargfunc",
        "wrap_sq_item",
        "wrap_sq_setitem",
        "wrap_sq_delitem",
        "wrap_objobjproc",
        "wrap_objobjargproc",
        "wrap_delitem",
        "wrap_setattr",
        "wrap_delattr",
        "wrap_hashfunc",
        "wrap_call",
        "wrap_del",
        "wrap_next",
        "wrap_descr_get",
        "wrap_descr_set",
        "wrap_descr_delete",
        "wrap_richcmpfunc",
        "async_gen_asend_send",
        "coro_wrapper_send",
        "coro_wrapper_iternext",
    )
)
"""CPython 3.8 to 3.14: Objects/call.c, methodobject.c, descrobject.c, classobject.c, typeobject.c (slots that call
Python methods), genobject.c, Python/ceval.c, getargs.c, pythonrun.c, Modules/main.c, _threadmodule.c."""

_PATTERN = re.compile(
    # Slots of classes written in Python (typeobject.c), which call their methods.
    r"(?:_Py_)?slot_(?:tp|nb|sq|mp|am)_\w+"
    # One for each way of calling a C function (methodobject.c, descrobject.c).
    r"|(?:cfunction|method)_vectorcall_[A-Z_]+"
    # Parsing of arguments (getargs.c).
    r"|_?PyArg_\w+"
)
_INLINED = frozenset(
    (
        "PyType_Check",
        "PyType_HasFeature",
        "PyVectorcall_NARGS",
        "Py_DECREF",
        "Py_INCREF",
        "Py_IS_TYPE",
        "Py_NewRef",
        "Py_SIZE",
        "Py_TYPE",
        "Py_XDECREF",
        "Py_XINCREF",
        "Py_XNewRef",
        "_PyErr_Occurred",
        "_PyFrame_Copy",
        "_PyFrame_GetCode",
        "_PyFrame_GetFrameObject",
        "_PyFrame_GetStackPointer",
        "_PyFrame_Initialize",
        "_PyFrame_InitializeSpecials",
        "_PyFrame_IsIncomplete",
        "_PyFrame_PushUnchecked",
        "_PyFrame_SetStackPointer",
        "_PyFrame_StackPush",
        "_PyInterpreterState_GET",
        "_PyObject_TypeCheck",
        "_PyRuntimeState_GetThreadState",
        "_PyThreadState_BumpFramePointer",
        "_PyThreadState_GET",
        "_PyThreadState_HasStackSpace",
        "_Py_DECREF",
        "_Py_DECREF_NO_DEALLOC",
        "_Py_EnterRecursivePy",
        "_Py_INCREF",
        "_Py_IsImmortal",
        "_Py_LeaveRecursiveCallPy",
        "_Py_MakeRecCheck",
        "_Py_XDECREF",
        "_Py_XINCREF",
        "frame_get_builtins",
    )
)
"""What headers inline into the functions above, without work of its own: it goes where they go, and stays elsewhere."""
_CLONE = re.compile(r"\.(?:cold|part|isra|constprop|lto_priv|llvm)\b.*|@plt$")


def _plain(system_name: str) -> str:
    return _CLONE.sub("", system_name)


def is_hidden(system_name: str, in_interpreter: bool) -> bool:
    """Whether a function only leads to others. What the compiler cut off it (`.cold`, `.part.0`) belongs to it. Outside
    of the interpreter only names with CPython's prefix are its own: headers inline them everywhere."""
    if system_name.startswith(TRAMPOLINE):
        return True
    name = _plain(system_name)
    if not in_interpreter and not name.startswith(("Py", "_Py")):
        return False
    return name in CPYTHON or _PATTERN.fullmatch(name) is not None


def visible(names: Sequence[str], in_interpreter: bool) -> list[int]:
    """Which of the functions at one address stay, as indices. `names`: as the linker has them, the innermost inlined
    call first. Reference counts and the like that a hidden function has inlined go with it."""
    kept: list[int] = []
    over_hidden = False
    for index in range(len(names) - 1, -1, -1):
        over_hidden = is_hidden(names[index], in_interpreter) or (over_hidden and _plain(names[index]) in _INLINED)
        if not over_hidden:
            kept.append(index)
    return kept[::-1]
