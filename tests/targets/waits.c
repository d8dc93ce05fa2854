/* Waits that leak EINTR when a sleeping thread is stopped, and a busy loop; loaded with ctypes, which releases the GIL.
 *
 * wait_loop(kind, rounds, spin): that many waits of about a millisecond, each after a busy spin; returns how many ended in
 * EINTR. own_eintrs(kind, rounds): each wait can only end by a SIGUSR1 from a second thread; returns the waits that
 * SIGUSR1 broke with EINTR. Both return a negative number when the system call itself does not work. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum kind { EPOLL_WAIT, EPOLL_PWAIT, EPOLL_PWAIT2, SEMOP, SEMTIMEDOP, SIGTIMEDWAIT, RECV_TIMEOUT, IO_GETEVENTS, KINDS };

static const int syscall_numbers[KINDS] = {SYS_epoll_wait, SYS_epoll_pwait, SYS_epoll_pwait2, SYS_semop, SYS_semtimedop,
                                           SYS_rt_sigtimedwait, SYS_recvfrom, SYS_io_getevents};

struct waiter {
    enum kind kind;
    int epoll, semaphore, sockets[2];
    aio_context_t aio;
    sigset_t open, none;
};

static volatile unsigned long sink;

void spin(long count)
{
    for (long i = 0; i < count; i++)
        sink += (unsigned long)i * 7;
}

/* Busy until this thread has used so much CPU time. */
void busy(double seconds)
{
    struct timespec now;
    double start, end;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    start = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
    do {
        spin(20000);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        end = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
    } while (end - start < seconds);
}

static int waiter_open(struct waiter *w, enum kind kind)
{
    struct timeval short_time = {0, 1000};
    memset(w, 0, sizeof *w);
    w->kind = kind;
    w->semaphore = -1;
    w->epoll = epoll_create1(EPOLL_CLOEXEC);
    sigemptyset(&w->none);
    pthread_sigmask(SIG_SETMASK, NULL, &w->open);
    sigdelset(&w->open, SIGUSR1);
    if (w->epoll < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, w->sockets))
        return -1;
    if ((kind == SEMOP || kind == SEMTIMEDOP) && (w->semaphore = semget(IPC_PRIVATE, 1, 0600)) < 0)
        return -1;
    if (kind == IO_GETEVENTS && syscall(SYS_io_setup, 4, &w->aio))
        return -1;
    return setsockopt(w->sockets[0], SOL_SOCKET, SO_RCVTIMEO, &short_time, sizeof short_time);
}

static void waiter_close(struct waiter *w)
{
    close(w->epoll);
    close(w->sockets[0]);
    close(w->sockets[1]);
    if (w->semaphore >= 0)
        semctl(w->semaphore, 0, IPC_RMID);
    if (w->aio)
        syscall(SYS_io_destroy, w->aio);
}

/* One wait of at most `milliseconds`; the errno it ended with, 0 for none. semop has no timeout: see releaser(). */
static int wait_once(struct waiter *w, long milliseconds)
{
    struct timespec limit = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    struct timeval receive = {milliseconds / 1000, milliseconds % 1000 * 1000};
    struct epoll_event event;
    struct io_event done;
    struct sembuf down = {0, -1, 0};
    sigset_t other;
    char byte;
    long result = 0;

    errno = 0;
    switch (w->kind) {
    case EPOLL_WAIT:
        result = syscall(SYS_epoll_wait, w->epoll, &event, 1, (int)milliseconds);
        break;
    case EPOLL_PWAIT:
        result = syscall(SYS_epoll_pwait, w->epoll, &event, 1, (int)milliseconds, &w->open, 8);
        break;
    case EPOLL_PWAIT2:
        result = syscall(SYS_epoll_pwait2, w->epoll, &event, 1, &limit, &w->open, 8);
        break;
    case SEMOP:
        result = syscall(SYS_semop, w->semaphore, &down, 1);
        break;
    case SEMTIMEDOP:
        result = syscall(SYS_semtimedop, w->semaphore, &down, 1, &limit);
        break;
    case SIGTIMEDWAIT:
        sigemptyset(&other);
        sigaddset(&other, SIGUSR2);
        result = syscall(SYS_rt_sigtimedwait, &other, NULL, &limit, 8);
        break;
    case RECV_TIMEOUT:
        if (milliseconds != 1)
            setsockopt(w->sockets[0], SOL_SOCKET, SO_RCVTIMEO, &receive, sizeof receive);
        result = recv(w->sockets[0], &byte, 1, 0);
        break;
    case IO_GETEVENTS:
        result = syscall(SYS_io_getevents, w->aio, 1, 1, &done, &limit);
        break;
    default:
        return EINVAL;
    }
    return result < 0 ? errno : 0;
}

/* semop waits without end; this thread lets it through every millisecond. */
struct releaser {
    int semaphore;
    atomic_int stop;
};

static void *release(void *argument)
{
    struct releaser *r = argument;
    struct timespec pause = {0, 1000000};
    struct sembuf up = {0, 1, 0};
    while (!atomic_load(&r->stop)) {
        nanosleep(&pause, NULL);
        if (semctl(r->semaphore, 0, GETVAL) == 0)
            semop(r->semaphore, &up, 1);
    }
    return NULL;
}

long wait_loop(int kind, long rounds, long spins)
{
    struct waiter w;
    struct releaser r = {0};
    pthread_t thread;
    long interrupted = 0;

    if (waiter_open(&w, (enum kind)kind))
        return -errno;
    if (kind == SEMOP) {
        r.semaphore = w.semaphore;
        pthread_create(&thread, NULL, release, &r);
    }
    for (long i = 0; i < rounds; i++) {
        int error;
        spin(spins);
        error = wait_once(&w, 1);
        if (error == EINTR)
            interrupted++;
        else if (error && error != EAGAIN && error != ETIMEDOUT) {
            interrupted = -error;
            break;
        }
    }
    if (kind == SEMOP) {
        atomic_store(&r.stop, 1);
        pthread_join(thread, NULL);
    }
    waiter_close(&w);
    return interrupted;
}

/* The converse. epoll_pwait and epoll_pwait2 open SIGUSR1 only while they wait, so a signal at any moment must end them
 * with EINTR; the others get theirs once the kernel says that the thread is in the wait. */
struct sender {
    struct waiter *w;
    pid_t tid;
    long rounds;
    atomic_long begun, ended, handled;
};

static struct sender *current;

static void on_signal(int number)
{
    (void)number;
    atomic_fetch_add(&current->handled, 1);
}

static int is_waiting(pid_t tid, int number)
{
    char path[64], text[64] = "";
    int fd, length;
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", tid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    length = (int)read(fd, text, sizeof text - 1);
    close(fd);
    return length > 0 && text[0] >= '0' && text[0] <= '9' && strtol(text, NULL, 10) == number;
}

static void *send_signals(void *argument)
{
    struct sender *s = argument;
    enum kind kind = s->w->kind;
    int any_moment = kind == EPOLL_PWAIT || kind == EPOLL_PWAIT2;
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    for (long i = 0; i < s->rounds; i++) {
        while (atomic_load(&s->begun) <= i)
            ;
        if (any_moment)
            spin((i * 2654435761u) % 40000);
        else
            while (atomic_load(&s->ended) <= i && !is_waiting(s->tid, syscall_numbers[kind]))
                ;
        syscall(SYS_tgkill, getpid(), s->tid, SIGUSR1);
        while (atomic_load(&s->ended) <= i)
            sched_yield();
    }
    return NULL;
}

long own_eintrs(int kind, long rounds)
{
    struct waiter w;
    struct sender s = {0};
    struct sigaction action = {0}, before;
    sigset_t block, old;
    pthread_t thread;
    long seen = 0;
    int masked = kind == EPOLL_PWAIT || kind == EPOLL_PWAIT2;

    action.sa_handler = on_signal; /* no SA_RESTART */
    sigaction(SIGUSR1, &action, &before);
    sigemptyset(&block);
    sigaddset(&block, SIGUSR1);
    pthread_sigmask(masked ? SIG_BLOCK : SIG_UNBLOCK, &block, &old);
    if (waiter_open(&w, (enum kind)kind))
        return -errno;
    s.w = &w;
    s.tid = (pid_t)syscall(SYS_gettid);
    s.rounds = rounds;
    current = &s;
    pthread_create(&thread, NULL, send_signals, &s);
    for (long i = 0; i < rounds; i++) {
        int error;
        atomic_store(&s.begun, i + 1);
        spin((i * 40503u) % 20000);
        error = wait_once(&w, 5000); /* a swallowed EINTR ends here after five seconds, and is not counted */
        if (error == EINTR)
            seen++;
        while (atomic_load(&s.handled) <= i)
            sched_yield();
        atomic_store(&s.ended, i + 1);
    }
    pthread_join(thread, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    sigaction(SIGUSR1, &before, NULL);
    waiter_close(&w);
    return seen;
}

/* A vfork parent cannot be stopped until its child is done: it is in state D. */
int vfork_sleep(unsigned microseconds)
{
    int status = 0;
    pid_t child = vfork();
    if (child == 0) {
        usleep(microseconds);
        _exit(7);
    }
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
