/* The fixed part of the generated programs (tests/support/sources.py) for Windows. The first argument says what it does:
 * chains, exceptions, load LIBRARY, deep KIB. It prints its pid when
 * it is ready. */
#include <malloc.h>
#include <process.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <windows.h>

#define KNOWN __attribute__((noipa, used))

typedef unsigned long long word;
static volatile word sink;

static inline word sorted(int (*compare)(const void *, const void *), word x) {
    word pair[2] = {x, x + 1};
    qsort(pair, 2, sizeof *pair, compare);
    return pair[0];
}

#include GENERATED

static void ready(void) {
    printf("%d\n", _getpid());
    fflush(stdout);
}

static DWORD WINAPI chain(void *argument) {
    word number = (word)argument;
    return (DWORD)(number == 1 ? entry1(1) : number == 2 ? entry2(1) : entry3(1));
}

static void threads(void) {
    for (word number = 1; number < 4; number++) CreateThread(NULL, 1 << 20, chain, (void *)number, 0, NULL);
}

/* Exceptions: whatever ran is interrupted by the dispatcher, which calls the handler. */

KNOWN void on_profile(int number) {
    for (int i = 0; i < 60; i++) sink += run4((word)number) + 1;
}

static LONG CALLBACK handler(EXCEPTION_POINTERS *told) {
    if (told->ExceptionRecord->ExceptionCode != EXCEPTION_ILLEGAL_INSTRUCTION) return EXCEPTION_CONTINUE_SEARCH;
    on_profile(1);
    told->ContextRecord->Rip += 2;
    return EXCEPTION_CONTINUE_EXECUTION;
}

KNOWN word entry_raise(word x) {
    for (;;) {
        __asm__ volatile("ud2");
        sink = x++;
    }
    return x;
}

static const char *library;

KNOWN word entry_load(word x) {
    for (;;) {
        HMODULE handle = LoadLibraryA(library);
        if (!handle) abort();
        word (*on_call)(word (*)(word), word) = (word(*)(word(*)(word), word))(void *)GetProcAddress(handle, "on_call");
        for (int i = 0; i < 8000; i++) x += on_call(run6, x) + 1;
        FreeLibrary(handle);
    }
    return x;
}

/* On a stack of more than so many KiB. */
KNOWN word entry_deep(word depth) {
    volatile char room[1000];
    room[depth % 1000] = 1;
    if (depth) return entry_deep(depth - 1) + (word)room[depth % 500];
    ready();
    return entry0(1) + 1;
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "chains", *more = argc > 2 ? argv[2] : "";
    if (!strcmp(mode, "chains")) threads(), ready(), entry0(1);
    if (!strcmp(mode, "exceptions")) AddVectoredExceptionHandler(1, handler), ready(), entry_raise(1);
    if (!strcmp(mode, "load")) library = more, ready(), entry_load(1);
    if (!strcmp(mode, "deep")) entry_deep((word)atoi(more));
    return 0;
}
