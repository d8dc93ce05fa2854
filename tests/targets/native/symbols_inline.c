/* Inlined calls, static parts, a switch: what an optimizing compiler makes chains of. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline __attribute__((always_inline)) int innermost(int x) {
    int y = x * 3;
    for (int i = 0; i < x % 7; i++)
        y ^= y << 3;
    return y;
}

static inline __attribute__((always_inline)) int middle(int x) {
    return innermost(x + 1) + innermost(x - 1);
}

__attribute__((noinline)) int outer(int x) {
    int sum = 0;
    for (int i = 0; i < x; i++)
        sum += middle(i);
    return sum;
}

static int compare(const void *a, const void *b) {
    return *(const int *)a - *(const int *)b;
}

__attribute__((noinline)) int sorted(int count) {
    int *values = malloc(sizeof(int) * (size_t)count);
    if (values == NULL)
        abort();
    for (int i = 0; i < count; i++)
        values[i] = outer(i % 10);
    qsort(values, (size_t)count, sizeof(int), compare);
    int result = values[count / 2];
    free(values);
    return result;
}

__attribute__((noinline)) int chooses(int x) {
    switch (x % 5) {
    case 0: return outer(x);
    case 1: return sorted(x + 1);
    case 2: return middle(x);
    case 3: return (int)strlen(x > 10 ? "long" : "short");
    default: return innermost(x);
    }
}

int main(int argc, char **argv) {
    int sum = 0;
    for (int i = 0; i < argc * 20; i++)
        sum += chooses(i);
    printf("%d %s\n", sum, argv[0]);
    return 0;
}
