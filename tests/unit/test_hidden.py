"""Which native functions are left out between Python frames."""

import pytest

from remoteprof.profile.hidden import is_hidden, visible
from remoteprof.profile.native import UNMATCHED, NativeFrames
from remoteprof.symbols import Line

WORK = [
    "builtin_sorted",
    "list_sort_impl",
    "list_sort",
    "binarysort",
    "unsafe_object_compare",
    "zlib_compress",
    "zlib_compress_impl",
    "functools_reduce",
    "_sre_SRE_Pattern_sub_impl",
    "pattern_subx",
    "encoder_listencode_obj",
    "gc_collect_main",
    "_PyObject_Malloc",
    "PyObject_Malloc",
    "_PyObject_GC_Alloc",
    "PyDict_GetItemWithError",
    "_Py_dict_lookup",
    "PyDict_SetItem",
    "lookdict_unicode",
    "_PyType_Lookup",
    "_PyObject_GenericGetAttrWithDict",
    "PyObject_GetAttr",
    "PyObject_GetIter",
    "PyObject_Repr",
    "PyObject_RichCompare",
    "PyNumber_Add",
    "_PyLong_Add",
    "PyUnicode_Join",
    "subtype_dealloc",
    "_Py_Dealloc",
    "PyObject_CallFinalizerFromDealloc",
    "list_extend",
    "map_next",
    "builtin_sum_impl",
    "_hashlib_openssl_sha256",
    "PyCFuncPtr_call",
    "_ctypes_callproc",
    "_CallPythonObject",
    "encoder_call",
    "take_gil",
    "PyEval_RestoreThread",
    "PyImport_ImportModuleLevelObject",
    "frame_dealloc",
]
LEADS = [
    "_PyEval_EvalFrameDefault",
    "_PyEval_EvalFrameDefault.cold",
    "_PyEval_Vector",
    "_PyEval_EvalCodeWithName",
    "_PyFunction_Vectorcall.part.0",
    "PyObject_Vectorcall@plt",
    "cfunction_vectorcall_FASTCALL_KEYWORDS_METHOD",
    "method_vectorcall_NOARGS",
    "slot_tp_richcompare",
    "slot_nb_add",
    "slot_sq_ass_item",
    "_Py_slot_tp_getattr_hook",
    "call_attribute",
    "wrap_objobjargproc",
    "_PyObject_FastCall_Prepend",
    "PyGen_am_send",
    "gen_send_ex2",
    "_PyArg_ParseStackAndKeywords",
    "PyArg_ParseTuple",
    "vgetargskeywordsfast_impl",
    "_PyEval_FrameClearAndPop",
    "Py_BytesMain",
    "_Py_CheckFunctionResult",
]


@pytest.mark.parametrize("name", WORK)
def test_what_works_stays(name):
    assert not is_hidden(name, True)
    assert not is_hidden(name, False)


@pytest.mark.parametrize("name", LEADS)
def test_what_only_leads_on_is_left_out(name):
    assert is_hidden(name, True)


def test_names_without_the_prefix_mean_the_interpreters_own():
    for name in ("method_call", "call_function", "thread_run", "wrap_init", "slot_tp_call", "type_call"):
        assert is_hidden(name, True)
        assert not is_hidden(name, False)
    # Headers inline these into every extension module.
    assert is_hidden("_PyObject_Vectorcall", False)
    assert not is_hidden("_PyEval_EvalFrameDefaultX", True)
    assert not is_hidden("cfunction_vectorcall_x", True)


def test_reference_counts_go_with_what_is_left_out():
    assert visible(["Py_INCREF", "_PyEval_Vector"], True) == []
    assert visible(["_Py_DECREF", "Py_XDECREF", "method_vectorcall_O"], True) == []
    assert visible(["Py_INCREF", "list_sort_impl", "list_sort"], True) == [0, 1, 2]
    assert visible(["Py_DECREF", "PyObject_CallOneArg", "list_sort_impl"], True) == [2]
    # An indirect call that the compiler took for this one.
    assert visible(["Py_DECREF", "builtin_len", "cfunction_vectorcall_O"], True) == [0, 1]
    assert visible([], True) == []


def line(name):
    return Line(name, name, "", 0, 0, 0)


@pytest.fixture
def batch(native):
    frames = [
        ("python", "f", "/f.py", 1, 1, 0, -1),
        ("loop", "", "", 0, 0, 0x1000, 0),
        ("native", "", "", 0, 0, 0x1010, 0),
        ("native", "", "", 0, 0, 0x1020, 0),
        ("native", "", "", 0, 0, 0x2000, 1),
        ("label", UNMATCHED, "", 0, 0, 0, -1),
        ("native", "", "", 0, 0, 0x1030, 0),
    ]
    mappings = [
        native.Mapping(0x1000, 0x2000, "r-xp", 0, "00:01", 1, "/bin/python"),
        native.Mapping(0x2000, 0x3000, "r-xp", 0, "00:01", 2, "/lib/other.so"),
    ]
    return native.batch(7, frames=frames, mappings=mappings)


NAMES = {
    (0, 0x1000): [line("long_add"), line("_PyEval_EvalFrameDefault")],
    (0, 0x1010): [line("method_call")],
    (0, 0x1020): [line("_PyObject_Vectorcall"), line("builtin_sorted")],
    (1, 0x2000): [line("method_call")],
}


def test_frames_of_the_loop_are_left_out_with_or_without_a_name(batch):
    shown = NativeFrames(batch, NAMES, False)
    assert shown.shown(1) is None
    assert NativeFrames(batch, {}, False).shown(1) is None
    # Where the loop is, there is the interpreter.
    assert shown.shown(2) is None
    assert shown.shown(3) == [line("builtin_sorted")]
    assert shown.shown(4) == [line("method_call")]
    assert shown.shown(6) == []
    assert shown.lines(1) == NAMES[0, 0x1000]


def test_all_are_shown_on_demand_and_where_nothing_was_matched(batch):
    everything = NativeFrames(batch, NAMES, True)
    assert [everything.shown(index) for index in (1, 2, 3)] == [NAMES[0, at] for at in (0x1000, 0x1010, 0x1020)]
    shown = NativeFrames(batch, NAMES, False)
    assert shown.merged([0, 1, 2])
    assert not shown.merged([1, 2, 5, 0])
    assert not shown.merged([2, 3])
