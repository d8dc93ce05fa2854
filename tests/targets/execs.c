/* execs 64|32 FILE: a busy thread, and one that turns the process into FILE with the argument 0.2 once it has read a line.
   The 32-bit call has another number (11), by which it cannot be told from outside that it is an exec. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static volatile uint64_t sink;

__attribute__((noinline)) static void busy(void) {
    for (;;) {
        sink = sink * 6364136223846793005u + 1442695040888963407u;
    }
}

static void *work(void *nothing) {
    busy();
    return nothing;
}

/* All that it is given must be in the first 4 GiB. */
static void execute32(const char *file) {
    char *low = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    if (low == MAP_FAILED) {
        return;
    }
    char *path = low + 64, *duration = low + 16;
    strncpy(path, file, 4096);
    strcpy(duration, "0.2");
    uint32_t arguments[3] = {(uint32_t)(uintptr_t)path, (uint32_t)(uintptr_t)duration, 0};
    memcpy(low, arguments, sizeof arguments);
    long result;
    __asm__ volatile("int $0x80"
                     : "=a"(result)
                     : "a"(11L), "b"(path), "c"(low), "d"(0L)
                     : "memory", "r8", "r9", "r10", "r11");
}

int main(int count, char **given) {
    pthread_t thread;
    char line[16];
    if (count != 3 || pthread_create(&thread, NULL, work, NULL)) {
        return 2;
    }
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) {
        return 3;
    }
    if (strcmp(given[1], "32")) {
        execl(given[2], given[2], "0.2", NULL);
    } else {
        execute32(given[2]);
    }
    perror("exec");
    return 1;
}
