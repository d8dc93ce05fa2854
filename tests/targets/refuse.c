/* Runs a program under a seccomp filter that refuses system calls: refuse HOW CALL[,CALL] COMMAND…
 * HOW is an error number, or "kill". CALL: ptrace, readv (process_vm_readv), openat2. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct {
    const char *name;
    unsigned number;
} calls[] = {{"ptrace", SYS_ptrace}, {"readv", SYS_process_vm_readv}, {"openat2", SYS_openat2}};

int main(int count, char **words)
{
    struct sock_filter filter[16] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
    unsigned short length = 1;
    if (count < 4)
        return 2;
    unsigned action = strcmp(words[1], "kill") == 0 ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ERRNO | atoi(words[1]);
    for (char *name = strtok(words[2], ","); name; name = strtok(NULL, ",")) {
        size_t at = 0;
        while (at < sizeof calls / sizeof *calls && strcmp(calls[at].name, name) != 0)
            at++;
        if (at == sizeof calls / sizeof *calls || length > 10)
            return 2;
        filter[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[at].number, 0, 1);
        filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action);
    }
    filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {length, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
        perror("seccomp");
        return 1;
    }
    execv(words[3], words + 3);
    perror(words[3]);
    return 127;
}
