// What a program sees of its sockets, as lines that are the same on every network that keeps the semantics of sockets.
#pragma once
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

// A scenario runs once on each of two nodes, `server` and `client`, at the same time, each time in a process of its own.
// What both do differently is told by `serving`.
struct scenario {
    const char *name;
    void (*run)(void);
};
extern const struct scenario addresses[], connecting[], accepting[], options[], flags[], data[], endings[], failing[],
    refusals[], families[], processes[], sweeps[];
extern bool serving;

// Output: one line each, begun with the scenario's name and the side.
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
long outcome(const char *what, long result); // "what: 0", or the error's name; gives the result, keeps errno
int opened(const char *what, int fd);        // the same for a result that is a descriptor, whose number says nothing
void die(const char *what) __attribute__((noreturn));

// Both sides have come to this point. It goes over pipes with names: no socket has a part in it.
void meet(void);

// Addresses. A host is a name of /etc/hosts, or a literal address. Ports count from the scenario's own: P0, P1, ...
struct address {
    union {
        struct sockaddr sa;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
        struct sockaddr_storage storage;
    };
    socklen_t length;
};
struct address at(const char *host, int port);
const char *shown(const struct sockaddr *address); // valid for the next seven calls
void show_names(const char *what, int fd);         // getsockname and getpeername
const char *error_name(int number);

// Sockets.
int stream(const char *host);                                   // of the host's family
int bound(const char *host, int port);                          // with SO_REUSEADDR
int listening(const char *host, int port);                      // the same, with a backlog of 64
int connected(int fd, const char *host, int port);              // as connect
int dial(const char *host, int port);                           // connected, or dead
int taken(int listener);                                        // accepted, or dead
int paired(const char *host);                                   // one connection between the two sides
int number_of(int fd, int level, int option);                   // getsockopt, or minus the error
const char *events(unsigned found);                             // of poll and epoll alike
enum { ALL = POLLIN | POLLPRI | POLLOUT | POLLRDHUP };
const char *ready(int fd, short wanted, int milliseconds);      // poll
int bring(int fd, char *into, int bytes);                       // reads all of them, or dies
void wait_for_bytes(int fd, int bytes);                         // until so many can be read
void nonblocking(int fd);
void watch(int epoll, int fd, unsigned wanted, uint64_t token); // registers with epoll
void heard(const char *what, int epoll, int milliseconds);      // says what epoll has
void last_error(int fd);                                        // says SO_ERROR
void send_byte(const char *what, int fd, char byte);            // and says whether it could
void put(int fd, const char *text);                             // sends all of it, or dies
void read_on(int fd);                                           // one read; says what came
void serve(int count);                                          // so many clients in turn, each read to its end
void be_told(void);                                             // connects once both have met, and says which byte comes

// Processes.
pid_t child(void (*run)(int), int argument);                    // exits with 0 after it
void reap(const char *what, pid_t pid);                         // says how it ended
void until_asleep(pid_t id);                                    // a process or a thread: until it waits in a system call
pthread_t asleep_in_thread(void (*run)(int), int argument);     // runs it and waits until it waits; one at a time
void tick(int milliseconds, void (*handler)(int), int flags);   // SIGUSR1, again and again; 0 ends it
const char *self(void);                                         // this program's path
int helper(int count, char **words);                            // what it does when it executes itself with --WORD
