/* A program whose callers are known: the functions of GENERATED call each other as its generator wrote down
 * (native/tests/unwind_support/program.rs). MODE as the first argument: calls, signals, altstack, clocks, threads, jit. */
#define _GNU_SOURCE
#include <alloca.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define KNOWN __attribute__((noipa, used))

typedef unsigned long word;
volatile word sink;

#include GENERATED

KNOWN word run_calls(word x) {
    for (;;) x += fn_0(x, 3) + 1, sink = x;
    return x;
}

KNOWN word handler_work(word x) {
    for (int i = 0; i < 6000; i++) x += fn_20(x + i, 1);
    return x + 1;
}

KNOWN void nested_handler(int number) {
    sink += handler_work((word)number) + 1;
}

KNOWN void outer_handler(int number) {
    sink += handler_work((word)number) + 1;
    raise(SIGUSR1);
    sink += handler_work((word)number) + 2;
}

KNOWN word handle(word x, int flags) {
    stack_t stack = {.ss_sp = malloc(256 << 10), .ss_size = 256 << 10};
    struct sigaction outer = {.sa_handler = outer_handler, .sa_flags = SA_RESTART | flags};
    struct sigaction nested = {.sa_handler = nested_handler, .sa_flags = SA_RESTART};
    struct itimerval timer = {{0, 300}, {0, 300}};
    sigaltstack(&stack, NULL);
    sigaction(SIGALRM, &outer, NULL);
    sigaction(SIGUSR1, &nested, NULL);
    setitimer(ITIMER_REAL, &timer, NULL);
    x += run_calls(x);
    return x + 1;
}

KNOWN word run_clocks(word x) {
    for (;;) {
        struct timespec spec;
        struct timeval value;
        unsigned cpu, node;
        for (int i = 0; i < 10; i++) clock_gettime(CLOCK_MONOTONIC, &spec), x += (word)spec.tv_nsec;
        for (int i = 0; i < 10; i++) gettimeofday(&value, NULL), x += (word)value.tv_usec;
        for (int i = 0; i < 10; i++) x += (word)time(NULL);
        for (int i = 0; i < 10; i++) getcpu(&cpu, &node), x += cpu;
        sink = x;
    }
    return x;
}

KNOWN void *worker(void *argument) {
    sink += run_calls((word)argument) + 1;
    return NULL;
}

KNOWN word run_threads(word x) {
    pthread_t thread;
    for (word i = 0; i < 3; i++) pthread_create(&thread, NULL, worker, (void *)i);
    x += run_calls(x);
    return x + 1;
}

KNOWN word called_by_jit(word x) {
    return fn_20(x, 1) + fn_30(x, 1) + 1;
}

/* Code of no file, with a frame pointer and no tables:
 * push %rbp; mov %rsp,%rbp; push %rbx; push %r12; mov %rdi,%rbx; mov %rsi,%r12;
 * 1: mov $200,%ecx; 2: dec %ecx; jnz 2b; mov %r12,%rdi; call *%rbx; add %rax,%r12; test $15,%r12b; jnz 1b;
 * mov %r12,%rax; pop %r12; pop %rbx; pop %rbp; ret */
static const unsigned char code[] = {
    0x55, 0x48, 0x89, 0xe5, 0x53, 0x41, 0x54, 0x48, 0x89, 0xfb, 0x49, 0x89, 0xf4, 0xb9, 0xc8, 0, 0, 0, 0xff, 0xc9,
    0x75, 0xfc, 0x4c, 0x89, 0xe7, 0xff, 0xd3, 0x49, 0x01, 0xc4, 0x41, 0xf6, 0xc4, 0x0f, 0x75, 0xe9, 0x4c, 0x89, 0xe0,
    0x41, 0x5c, 0x5b, 0x5d, 0xc3,
};

KNOWN word run_jit(word x) {
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(page, code, sizeof code);
    mprotect(page, 4096, PROT_READ | PROT_EXEC);
    puts("mapped");
    fflush(stdout);
    word (*run)(word (*)(word), word) = (word (*)(word (*)(word), word))page;
    for (;;) x += run(called_by_jit, x), sink = x;
    return x;
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "calls";
    puts("ready");
    fflush(stdout);
    if (!strcmp(mode, "calls")) return (int)run_calls(1) + 1;
    if (!strcmp(mode, "signals")) return (int)handle(1, 0) + 1;
    if (!strcmp(mode, "altstack")) return (int)handle(1, SA_ONSTACK) + 1;
    if (!strcmp(mode, "clocks")) return (int)run_clocks(1) + 1;
    if (!strcmp(mode, "threads")) return (int)run_threads(1) + 1;
    if (!strcmp(mode, "jit")) return (int)run_jit(1) + 1;
    return 2;
}
