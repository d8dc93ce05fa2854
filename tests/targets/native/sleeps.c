/* Threads that wait in calls which are known by their names; and one whose vfork keeps it in an uninterruptible wait. */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <time.h>
#include <unistd.h>

#define KNOWN __attribute__((noipa, used))

static int pipes[2];
static volatile int sink;

KNOWN void *in_epoll(void *argument) {
    struct epoll_event event;
    int poller = epoll_create1(0);
    for (;;) sink += epoll_wait(poller, &event, 1, 600000);
    return argument;
}

KNOWN void *in_poll(void *argument) {
    struct pollfd polled = {.fd = pipes[0], .events = POLLIN};
    for (;;) sink += poll(&polled, 1, 600000);
    return argument;
}

KNOWN void *in_read(void *argument) {
    char byte;
    for (;;) sink += (int)read(pipes[0], &byte, 1);
    return argument;
}

KNOWN void *in_sleep(void *argument) {
    struct timespec long_time = {600, 0};
    for (;;) sink += nanosleep(&long_time, NULL);
    return argument;
}

KNOWN void *in_lock(void *argument) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    pthread_mutex_lock(&lock);
    return argument;
}

KNOWN void *in_vfork(void *argument) {
    if (vfork() == 0) {
        struct timespec long_time = {600, 0};
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(1);
        nanosleep(&long_time, NULL);
        _exit(0);
    }
    return argument;
}

int main(int argc, char **argv) {
    void *(*const all[])(void *) = {in_epoll, in_poll, in_read, in_sleep, in_lock, in_vfork};
    if (pipe(pipes)) return 1;
    for (int i = 0; i < 6; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, all[i], argv);
    }
    usleep(200000);
    puts("ready");
    fflush(stdout);
    for (;;) pause();
    return argc;
}
