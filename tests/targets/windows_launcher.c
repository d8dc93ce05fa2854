/* What python.exe of a venv is on Windows (CPython: PC/venvlauncher.c), as far as others see it: it starts the
   interpreter of the same arguments, in a job of its own that ends with it, waits, and ends with its status. Says its own
   process id first, and that of its parent. The interpreter is that of the variable REAL_PYTHON. */
#include <windows.h>
#include <stdio.h>
#include <tlhelp32.h>
#include <wchar.h>

static DWORD parent(void) {
    PROCESSENTRY32W entry = {.dwSize = sizeof entry};
    HANDLE all = CreateToolhelp32Snapshot(TH32CS_SNAPPROCESS, 0);
    for (BOOL more = Process32FirstW(all, &entry); more; more = Process32NextW(all, &entry))
        if (entry.th32ProcessID == GetCurrentProcessId()) return entry.th32ParentProcessID;
    return 0;
}

int wmain(void) {
    static wchar_t program[32768], line[32768];
    PROCESS_INFORMATION child;
    STARTUPINFOW start = {.cb = sizeof start};
    JOBOBJECT_EXTENDED_LIMIT_INFORMATION limits = {0};
    const wchar_t *rest = GetCommandLineW();
    DWORD status = 1;

    printf("%lu %lu\n", GetCurrentProcessId(), parent());
    fflush(stdout);
    if (!GetEnvironmentVariableW(L"REAL_PYTHON", program, 32768)) return 101;
    if (*rest == L'"') {
        rest = wcschr(rest + 1, L'"');
        rest = rest ? rest + 1 : L"";
    } else {
        rest += wcscspn(rest, L" ");
    }
    _snwprintf(line, 32768, L"\"%ls\"%ls", program, rest);
    HANDLE job = CreateJobObjectW(NULL, NULL);
    limits.BasicLimitInformation.LimitFlags = JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE | JOB_OBJECT_LIMIT_SILENT_BREAKAWAY_OK;
    SetInformationJobObject(job, JobObjectExtendedLimitInformation, &limits, sizeof limits);
    SetConsoleCtrlHandler(NULL, FALSE);
    if (!CreateProcessW(NULL, line, NULL, NULL, TRUE, 0, NULL, NULL, &start, &child)) return 102;
    AssignProcessToJobObject(job, child.hProcess);
    WaitForSingleObject(child.hProcess, INFINITE);
    GetExitCodeProcess(child.hProcess, &status);
    return (int)status;
}
