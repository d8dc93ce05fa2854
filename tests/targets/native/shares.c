/* Thirty functions of known shares, called in a random order: shares [UNITS…] gives the work of function 0, 1, … in
   units; the last number holds for all that follow. Prints "ready", then works until it is killed. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static volatile uint64_t sink;

#define WORK(name)                                                 \
    __attribute__((noinline)) static void name(long units) {       \
        uint64_t value = sink;                                     \
        for (long i = 0; i < units; i++) {                         \
            value = value * 6364136223846793005u + 1442695040888963407u; \
        }                                                          \
        sink = value;                                              \
    }

#define TEN(p) WORK(p##0) WORK(p##1) WORK(p##2) WORK(p##3) WORK(p##4) WORK(p##5) WORK(p##6) WORK(p##7) WORK(p##8) WORK(p##9)
TEN(work_0) TEN(work_1) TEN(work_2)

#define NAMES(p) p##0, p##1, p##2, p##3, p##4, p##5, p##6, p##7, p##8, p##9
static void (*const works[30])(long) = {NAMES(work_0), NAMES(work_1), NAMES(work_2)};

int main(int count, char **given) {
    long units[30];
    int order[30];
    for (int i = 0; i < 30; i++) {
        units[i] = count > 1 ? atol(given[i + 1 < count ? i + 1 : count - 1]) : 10000;
        order[i] = i;
    }
    uint64_t state = 88172645463325252u;
    puts("ready");
    fflush(stdout);
    for (;;) {
        for (int i = 29; i > 0; i--) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            int j = (int)(state % (uint64_t)(i + 1)), held = order[i];
            order[i] = order[j];
            order[j] = held;
        }
        for (int i = 0; i < 30; i++) {
            works[order[i]](units[order[i]]);
        }
    }
}
