/* Asks for the time for ever, in every way that the vDSO answers. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <sys/time.h>
#include <time.h>

#define KNOWN __attribute__((noipa, used))

static volatile unsigned long sink;

KNOWN void in_clock_gettime(void) {
    struct timespec now;
    for (int i = 0; i < 2000; i++) clock_gettime(CLOCK_MONOTONIC, &now), sink += (unsigned long)now.tv_nsec;
    sink++;
}

KNOWN void in_gettimeofday(void) {
    struct timeval now;
    for (int i = 0; i < 2000; i++) gettimeofday(&now, NULL), sink += (unsigned long)now.tv_usec;
    sink++;
}

KNOWN void in_time(void) {
    for (int i = 0; i < 20000; i++) sink += (unsigned long)time(NULL);
    sink++;
}

KNOWN void in_getcpu(void) {
    unsigned cpu, node;
    for (int i = 0; i < 5000; i++) getcpu(&cpu, &node), sink += cpu;
    sink++;
}

int main(void) {
    puts("ready");
    fflush(stdout);
    for (;;) in_clock_gettime(), in_gettimeofday(), in_time(), in_getcpu();
}
