/* What a hostile program in a node does to look into, or get hold of, the node's PID 1. Each line says what came of it. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static void say(const char *deed, long result) {
    printf("%s: %s\n", deed, result < 0 ? strerrorname_np(errno) : "done");
}

/* Opening it is enough to have it; one that opens and cannot be read is as good as closed. */
static void get(const char *name) {
    char path[64], bytes[64];
    snprintf(path, sizeof path, "/proc/1/%s", name);
    int file = open(path, O_RDONLY);
    long result = file < 0 ? -1 : pread(file, bytes, sizeof bytes, strcmp(name, "mem") ? 0 : 0x400000);
    say(name, result);
    if (file >= 0) close(file);
}

static void follow(const char *name) {
    char path[64], target[256];
    snprintf(path, sizeof path, "/proc/1/%s", name);
    say(name, readlink(path, target, sizeof target));
}

static void look(void) {
    const char *files[] = {"environ", "mem",     "maps", "smaps", "smaps_rollup", "pagemap", "auxv", "stack",
                           "syscall", "numa_maps", "io",   "personality", "map_files"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) get(files[i]);
    const char *links[] = {"exe", "cwd", "root", "ns/mnt", "ns/pid", "ns/net", "fd/0", "fd/1", "fd/2", "fd/3"};
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) follow(links[i]);
    say("write its memory", open("/proc/1/mem", O_WRONLY));
    char byte;
    struct iovec ours = {&byte, 1}, theirs = {(void *)0x400000, 1};
    say("read its memory", process_vm_readv(1, &ours, 1, &theirs, 1, 0));
    say("write into it", process_vm_writev(1, &ours, 1, &theirs, 1, 0));
    say("attach", ptrace(PTRACE_ATTACH, 1, 0, 0));
    say("seize", ptrace(PTRACE_SEIZE, 1, 0, 0));
    int init = syscall(SYS_pidfd_open, 1, 0);
    say("take a descriptor", init < 0 ? -1 : syscall(SYS_pidfd_getfd, init, 0, 0));
    say("compare descriptors", syscall(SYS_kcmp, getpid(), 1, 0, 0, 0));
    kill(1, SIGKILL);
    kill(1, SIGSTOP);
    kill(1, SIGTERM);
    say("it lives", kill(1, 0));
}

/* Reads the memory and the environment of whatever appears in the node, as fast as it can, and says what it found of `marker`. */
static void lurk(const char *marker) {
    static char bytes[1 << 16];
    const size_t length = strlen(marker);
    setvbuf(stdout, 0, _IOLBF, 0);
    puts("lurking");
    for (int pid = getpid() + 1;;) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/environ", pid);
        int file = open(path, O_RDONLY);
        if (file < 0 && errno == ENOENT) {
            /* Numbers are given in order: who is there is not there yet, or gone. */
            DIR *proc = opendir("/proc");
            for (struct dirent *entry; (entry = readdir(proc));)
                if (atoi(entry->d_name) > pid) pid = atoi(entry->d_name);
            closedir(proc);
            continue;
        }
        if (file < 0) continue;
        ssize_t n = read(file, bytes, sizeof bytes);
        close(file);
        if (n > 0 && memmem(bytes, n, marker, length)) puts("found");
        if (n > 0 && memmem(bytes, n, "LAST=1", 6)) break;
        pid += n > 0; /* Nothing is there of one that executes at this moment. */
    }
    puts("over");
}

/* Leaves orphans of every kind behind, and says how many of them are still there once they have ended. */
static void orphans(void) {
    int over[2];
    if (pipe(over)) return;
    for (int i = 0; i < 50; i++) {
        if (fork() == 0) {
            pid_t child = i % 2 ? fork() : syscall(SYS_clone, 0, 0, 0, 0, 0);
            if (child == 0) {
                if (i % 3 == 0) usleep(1000 * i);
                _exit(0);
            }
            _exit(0);
        }
    }
    close(over[1]);
    while (wait(0) > 0) {}
    char byte;
    if (read(over[0], &byte, 1) < 0) return; /* All copies of the other end are closed: all have ended. */
    int left = 0;
    DIR *proc = opendir("/proc");
    for (struct dirent *entry; (entry = readdir(proc));) {
        char path[300], state[300] = "";
        snprintf(path, sizeof path, "/proc/%s/stat", entry->d_name);
        FILE *file = atoi(entry->d_name) ? fopen(path, "r") : 0;
        if (!file) continue;
        if (fgets(state, sizeof state, file) && strstr(state, ") Z 1 ")) left++;
        fclose(file);
    }
    printf("left: %d\n", left);
}

int main(int argc, char **argv) {
    const char *deed = argc > 1 ? argv[1] : "";
    if (!strcmp(deed, "look")) look();
    if (!strcmp(deed, "lurk")) lurk(argv[2]);
    if (!strcmp(deed, "orphans")) orphans();
    return 0;
}
