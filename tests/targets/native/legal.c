/* The fixed part of the generated programs (tests/support/sources.py), C and C++. The first argument says what it does:
 * chains, split, signals, altstack, profile, jit, load LIBRARY, swap LIBRARY OTHER,
 * deep KIB. */
#define _GNU_SOURCE
#include <alloca.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define KNOWN __attribute__((noipa, used))

typedef unsigned long word;
static volatile word sink;

static inline word sorted(int (*compare)(const void *, const void *), word x) {
    word pair[2] = {x, x + 1};
    qsort(pair, 2, sizeof *pair, compare);
    return pair[0];
}

#ifdef __cplusplus
#include <functional>
#include <string>
#include <vector>

struct step {
    virtual word run(word, int) = 0;
};

template <class...> struct list {};
template <int N, class T> struct numbered {};

struct guard {
    word *x;
    explicit guard(word *x) : x(x) {}
    KNOWN ~guard() { *x += 1; }
};

template <int N> struct deep {
    static KNOWN word run(word x) {
        word y = deep<N - 1>::run(x * 31);
        return y + N;
    }
};

template <> struct deep<0> {
    static KNOWN word run(word x) {
        for (int i = 0; i < 60; i++) x = x * 31 + (x >> 7);
        return x;
    }
};
#endif

#include GENERATED

static void ready(void) {
    puts("ready");
    fflush(stdout);
}

static void *chain(void *argument) {
    word number = (word)argument;
    return (void *)(number == 1 ? entry1(1) : number == 2 ? entry2(1) : entry3(1));
}

static void threads(void) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 1 << 20);
    for (word number = 1; number < 4; number++) {
        pthread_t thread;
        pthread_create(&thread, &attributes, chain, (void *)number);
    }
}

/* Known shares of CPU time, measured by the program itself. */

static volatile sig_atomic_t ended;

static void end(int number) { ended = number; }

static double used(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static inline void spin(word turns) {
    for (word i = 0; i < turns; i++) sink = sink * 31 + i;
}

KNOWN void half(word turns) { spin(turns * 21); }
KNOWN void third(word turns) { spin(turns * 14); }
KNOWN void seventh(word turns) { spin(turns * 6); }
KNOWN void rest(word turns) { spin(turns); }

KNOWN void split(void) {
    static void (*const parts[])(word) = {half, third, seventh, rest};
    static const char *const names[] = {"half", "third", "seventh", "rest"};
    double spent[4] = {0}, first = used(), before = first;
    signal(SIGTERM, end);
    ready();
    while (!ended)
        for (int part = 0; part < 4; part++) {
            parts[part](200000); /* long beside the clock: system calls draw stops to them (README, Limits) */
            double now = used();
            spent[part] += now - before;
            before = now;
        }
    printf("{\"total\": %.9f, \"spent\": {", before - first);
    for (int part = 0; part < 4; part++) printf("%s\"%s\": %.9f", part ? ", " : "", names[part], spent[part]);
    puts("}}");
}

/* Signals. */

KNOWN void on_nested(int number) {
    for (int i = 0; i < 40; i++) sink += run5((word)number) + 1;
}

KNOWN void on_alarm(int number) {
    for (int i = 0; i < 40; i++) sink += run4((word)number) + 1;
    raise(SIGUSR1);
    for (int i = 0; i < 40; i++) sink += run4((word)number) + 2;
}

KNOWN void on_profile(int number) {
    for (int i = 0; i < 60; i++) sink += run4((word)number) + 1;
}

static void handle(int number, void (*handler)(int), int flags) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART | flags;
    sigaction(number, &action, NULL);
}

static void signals(int flags, int timer, int number, void (*handler)(int)) {
    stack_t stack;
    memset(&stack, 0, sizeof stack);
    stack.ss_sp = malloc(256 << 10);
    stack.ss_size = 256 << 10;
    sigaltstack(&stack, NULL);
    handle(number, handler, flags);
    handle(SIGUSR1, on_nested, flags & ~SA_ONSTACK);
    struct itimerval often = {{0, 700}, {0, 700}};
    setitimer((__typeof__(ITIMER_REAL))timer, &often, NULL);
    ready();
    entry0(1);
}

/* Code of no file, with a frame pointer and no tables:
 * push %rbp; mov %rsp,%rbp; push %rbx; push %r12; mov %rdi,%rbx; mov %rsi,%r12;
 * 1: mov $2000,%ecx; 2: dec %ecx; jnz 2b; mov %r12,%rdi; call *%rbx; add %rax,%r12; test $15,%r12b; jnz 1b;
 * mov %r12,%rax; pop %r12; pop %rbx; pop %rbp; ret */
static const unsigned char code[] = {
    0x55, 0x48, 0x89, 0xe5, 0x53, 0x41, 0x54, 0x48, 0x89, 0xfb, 0x49, 0x89, 0xf4, 0xb9, 0xd0, 7,    0, 0, 0xff, 0xc9,
    0x75, 0xfc, 0x4c, 0x89, 0xe7, 0xff, 0xd3, 0x49, 0x01, 0xc4, 0x41, 0xf6, 0xc4, 0x0f, 0x75, 0xe9, 0x4c, 0x89, 0xe0,
    0x41, 0x5c, 0x5b, 0x5d, 0xc3,
};

static word (*jitted)(word (*)(word), word);
static const char *library;

KNOWN word entry_jit(word x) {
    for (;;) x += jitted(run6, x) + 1, sink = x;
    return x;
}

static void jit(const char *map) {
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(page, code, sizeof code);
    mprotect(page, 4096, PROT_READ | PROT_EXEC);
    jitted = (word(*)(word(*)(word), word))page;
    if (map) {
        char path[64];
        snprintf(path, sizeof path, "/tmp/perf-%d.map", (int)getpid());
        FILE *file = fopen(path, "w");
        fprintf(file, "%lx %zx jitted loop\n", (word)page, sizeof code);
        fclose(file);
    }
    ready();
    entry_jit(1);
}

KNOWN word entry_load(word x) {
    for (;;) {
        void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
        if (!handle) abort();
        word (*on_call)(word (*)(word), word) = (word(*)(word(*)(word), word))dlsym(handle, "on_call");
        for (int i = 0; i < 200; i++) x += on_call(run6, x) + 1;
        dlclose(handle);
    }
    return x;
}

/* One library, and then another, mostly in its place. */
#define TURN(name, path, function)                                                                       \
    KNOWN word name(word x) {                                                                            \
        void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);                                              \
        if (!handle) abort();                                                                            \
        word (*call)(word (*)(word), word) = (word(*)(word(*)(word), word))dlsym(handle, function);      \
        for (int i = 0; i < 2000; i++) x += call(run6, x) + 1;                                           \
        dlclose(handle);                                                                                 \
        return x;                                                                                        \
    }

static const char *other;
TURN(entry_first, library, "on_call")
TURN(entry_second, other, "on_other")

KNOWN word entry_swap(word x) {
    for (;;) {
        x = entry_first(x) + 1;
        x = entry_second(x) + 1;
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
    const char *mode = argc > 1 ? argv[1] : "chains", *more = argc > 2 ? argv[2] : NULL;
    if (!strcmp(mode, "chains")) threads(), ready(), entry0(1);
    if (!strcmp(mode, "split")) split();
    if (!strcmp(mode, "signals")) signals(0, ITIMER_REAL, SIGALRM, on_alarm);
    if (!strcmp(mode, "altstack")) signals(SA_ONSTACK, ITIMER_REAL, SIGALRM, on_alarm);
    if (!strcmp(mode, "profile")) signals(0, ITIMER_PROF, SIGPROF, on_profile);
    if (!strcmp(mode, "jit")) jit(more);
    if (!strcmp(mode, "load")) library = more, ready(), entry_load(1);
    if (!strcmp(mode, "swap")) library = more, other = argv[3], ready(), entry_swap(1);
    if (!strcmp(mode, "deep")) entry_deep((word)atoi(more));
    return 0;
}
