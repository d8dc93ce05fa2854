// A thread of C that calls back into Python now and then: it has a Python thread state only for as long.
#include <pthread.h>
#include <stddef.h>

static volatile unsigned long turns;

void __attribute__((noinline)) pool_alone(long count) {
    while (count--)
        turns++;
}

static void *pool_loop(void *callback) {
    for (;;) {
        pool_alone(100000);
        if (callback)
            ((void (*)(void))callback)();
    }
    return NULL;
}

void pool_start(void (*callback)(void)) {
    pthread_t thread;
    pthread_create(&thread, NULL, pool_loop, (void *)callback);
}
