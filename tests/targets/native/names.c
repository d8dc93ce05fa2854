/* Spends its time in `hot`, in code of its own or, given a word, in code made at run time that tells of itself in a perf
   map. Prints "ready". */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef HOT
#define HOT hot
#endif

volatile uint64_t sink;

static inline uint64_t mixed(uint64_t x) {
    x ^= x << 13;
    x ^= x >> 7;
    return x ^ x << 17;
}

static void __attribute__((noinline)) HOT(void) {
    for (uint64_t x = 1;;) {
        x = mixed(x) | 1;
        sink = x;
    }
}

/* push %rbp; mov %rsp, %rbp; inc %rax; jmp to the inc */
static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0xff, 0xc0, 0xeb, 0xfb};

static void made(void) {
    unsigned char *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(at + 64, code, sizeof code);
    mprotect(at, 4096, PROT_READ | PROT_EXEC);
    char path[64];
    snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
    FILE *map = fopen(path, "w");
    fprintf(map, "%lx %zx jit::hot loop\n", (unsigned long)(at + 64), sizeof code);
    fclose(map);
    puts("ready");
    fflush(stdout);
    ((void (*)(void))(at + 64))();
}

int main(int count, char **words) {
    (void)words;
    if (count > 1) {
        made();
    }
    puts("ready");
    fflush(stdout);
    HOT();
}
