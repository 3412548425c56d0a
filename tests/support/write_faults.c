/* Preloaded into a command: counts what it writes below FAULT_FOLDER, and lets the write number FAULT_AT fail.
 *
 * FAULT_KIND is "count", "full" (this write and all later ones fail with ENOSPC), "kill" (SIGKILL in its place) or
 * "interrupt" (SIGINT before it). Writes are write, pwrite, writev, ftruncate, and what makes or renames a file. The
 * number of the last write is a 64-bit integer in the file FAULT_COUNTER, which all processes of the command share. The
 * file of each write is a line of FAULT_LOG. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

static _Atomic long long *counter;
static const char *folder, *kind;
static long long at;
static int log_file = -1;

__attribute__((constructor)) static void prepare(void)
{
    const char *path = getenv("FAULT_COUNTER"), *number = getenv("FAULT_AT"), *said = getenv("FAULT_LOG");
    folder = getenv("FAULT_FOLDER");
    kind = getenv("FAULT_KIND");
    at = number ? atoll(number) : 0;
    int file = path ? (int)syscall(257 /* openat */, AT_FDCWD, path, O_RDWR) : -1;
    if (file < 0 || !folder || !kind)
        return;
    void *shared = mmap(NULL, 8, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    counter = shared == MAP_FAILED ? NULL : shared;
    close(file);
    log_file = said ? (int)syscall(257 /* openat */, AT_FDCWD, said, O_WRONLY | O_APPEND | O_CREAT, 0600) : -1;
}

/* Whether this write of a file below the folder fails; a signal may end the process instead. */
static int fails(const char *path)
{
    if (!counter || !path || strncmp(path, folder, strlen(folder)) != 0)
        return 0;
    long long number = atomic_fetch_add(counter, 1) + 1;
    char line[PATH_MAX + 2];
    int length = snprintf(line, sizeof line, "%s\n", path);
    syscall(1 /* write */, log_file, line, (size_t)length);
    if (number == at && strcmp(kind, "kill") == 0)
        kill(getpid(), SIGKILL);
    if (number == at && strcmp(kind, "interrupt") == 0)
        raise(SIGINT);
    if (at && number >= at && strcmp(kind, "full") == 0) {
        errno = ENOSPC;
        return 1;
    }
    return 0;
}

static int fails_on(int file)
{
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = counter ? readlink(link, path, sizeof path - 1) : -1;
    if (length < 0)
        return 0;
    path[length] = 0;
    return fails(path);
}

#define REAL(result, name, ...) ((result (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name))

ssize_t write(int file, const void *data, size_t size)
{
    return fails_on(file) ? -1 : REAL(ssize_t, write, int, const void *, size_t)(file, data, size);
}

ssize_t pwrite(int file, const void *data, size_t size, off_t place)
{
    return fails_on(file) ? -1 : REAL(ssize_t, pwrite, int, const void *, size_t, off_t)(file, data, size, place);
}

ssize_t pwrite64(int file, const void *data, size_t size, off64_t place)
{
    return fails_on(file) ? -1 : REAL(ssize_t, pwrite64, int, const void *, size_t, off64_t)(file, data, size, place);
}

ssize_t writev(int file, const struct iovec *parts, int count)
{
    return fails_on(file) ? -1 : REAL(ssize_t, writev, int, const struct iovec *, int)(file, parts, count);
}

int ftruncate(int file, off_t size)
{
    return fails_on(file) ? -1 : REAL(int, ftruncate, int, off_t)(file, size);
}

int ftruncate64(int file, off64_t size)
{
    return fails_on(file) ? -1 : REAL(int, ftruncate64, int, off64_t)(file, size);
}

int rename(const char *from, const char *to)
{
    return fails(to) ? -1 : REAL(int, rename, const char *, const char *)(from, to);
}

int renameat(int from_folder, const char *from, int to_folder, const char *to)
{
    return fails(to) ? -1 : REAL(int, renameat, int, const char *, int, const char *)(from_folder, from, to_folder, to);
}

#define OPENED(name)                                                                                                  \
    int name(const char *path, int flags, ...)                                                                        \
    {                                                                                                                 \
        va_list more;                                                                                                 \
        va_start(more, flags);                                                                                        \
        int mode = flags & O_CREAT ? va_arg(more, int) : 0;                                                           \
        va_end(more);                                                                                                 \
        return flags &O_CREAT &&fails(path) ? -1 : REAL(int, name, const char *, int, ...)(path, flags, mode);        \
    }

OPENED(open)
OPENED(open64)
