/* Spends CPU time in known functions, under gperftools' profiler: burns [ROUNDS]. */
#include <gperftools/profiler.h>
#include <stdio.h>
#include <stdlib.h>

static volatile unsigned long sink;

__attribute__((noinline)) void leaf(unsigned long n) {
    for (unsigned long i = 0; i < n; i++)
        sink += i * i;
}

__attribute__((noinline)) void middle(unsigned long n) {
    leaf(n);
    sink++;
}

__attribute__((noinline)) void other(unsigned long n) {
    for (unsigned long i = 0; i < n; i++)
        sink ^= i;
    sink++;
}

int main(int count, char **arguments) {
    int rounds = count > 1 ? atoi(arguments[1]) : 40;
    for (int i = 0; i < rounds; i++) {
        middle(8000000);
        other(6000000);
    }
    printf("%lu\n", sink);
    return 0;
}
