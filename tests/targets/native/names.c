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

static void put(FILE *file, unsigned long long value, size_t size) { fwrite(&value, size, 1, file); }

/* tools/perf/Documentation/jitdump-specification.txt: a header, rows of lines, a function; mapped for perf to see. */
static void dump(const unsigned char *at) {
    static const char name[] = "jit::dumped loop", source[] = "/src/hot.js";
    const unsigned long long address = (unsigned long long)at;
    char path[64];
    snprintf(path, sizeof path, "/tmp/jit-%d.dump", getpid());
    FILE *file = fopen(path, "w+");
    const unsigned header[] = {0x4a695444, 1, 40, 62, 0, (unsigned)getpid(), 0, 0, 0, 0};
    fwrite(header, sizeof header, 1, file);
    put(file, 2, 4), put(file, 16 + 16 + 16 + sizeof source, 4), put(file, 0, 8);
    put(file, address, 8), put(file, 1, 8);
    put(file, address, 8), put(file, 42, 4), put(file, 0, 4), fwrite(source, sizeof source, 1, file);
    put(file, 0, 4), put(file, 16 + 40 + sizeof name + sizeof code, 4), put(file, 0, 8);
    put(file, (unsigned)getpid(), 4), put(file, (unsigned)getpid(), 4), put(file, address, 8);
    put(file, address, 8), put(file, sizeof code, 8), put(file, 1, 8);
    fwrite(name, sizeof name, 1, file), fwrite(code, sizeof code, 1, file);
    fflush(file);
    mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fileno(file), 0);
    fclose(file);
}

static void made(int dumped) {
    unsigned char *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(at + 64, code, sizeof code);
    mprotect(at, 4096, PROT_READ | PROT_EXEC);
    if (dumped) {
        dump(at + 64);
    } else {
        char path[64];
        snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
        FILE *map = fopen(path, "w");
        fprintf(map, "%lx %zx jit::hot loop\n", (unsigned long)(at + 64), sizeof code);
        fclose(map);
    }
    puts("ready");
    fflush(stdout);
    ((void (*)(void))(at + 64))();
}

int main(int count, char **words) {
    if (count > 1) {
        made(!strcmp(words[1], "jitdump"));
    }
    puts("ready");
    fflush(stdout);
    HOT();
}
