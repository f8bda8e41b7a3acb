/* Makes the disk full, or the folder read-only, below one folder and from a chosen moment on: libc's calls that take room or
   change a folder fail there. Python and the Rust of safetensors both go through them. Loaded by LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

/* Shared with the test, which sets all but `calls`. */
struct control {
    long calls;   /* so far, below the root */
    long from;    /* the first call that fails; 0: none does */
    long length;  /* how many fail; negative: all that follow */
    long code;    /* errno */
    char root[PATH_MAX];
};

static struct control *control;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("NODISK_CONTROL");
    int handle = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (handle < 0) return;
    void *found = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, handle, 0);
    if (found != MAP_FAILED) control = found;
}

static int below(const char *path) {
    char here[PATH_MAX];
    if (!control || !control->root[0] || !path) return 0;
    if (path[0] != '/') {
        if (!getcwd(here, sizeof here)) return 0;
        path = here; /* the tests name absolute paths: a relative one lies in the working folder */
    }
    return strncmp(path, control->root, strlen(control->root)) == 0;
}

static int of_handle(int handle) {
    char link[64], path[PATH_MAX];
    if (!control || !control->root[0]) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", handle);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    return below(path);
}

/* 0: goes through; 1: fails; 2: the first one that fails, of which a write still does a half. */
static int fails(int concerned) {
    if (!concerned) return 0;
    long call = __sync_add_and_fetch(&control->calls, 1);
    if (!control->from || call < control->from) return 0;
    if (control->length >= 0 && call >= control->from + control->length) return 0;
    errno = (int)control->code;
    return call == control->from ? 2 : 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define FAIL(concerned) do { if (fails(concerned)) return -1; } while (0)

ssize_t write(int handle, const void *data, size_t size) {
    int how = handle > 2 ? fails(of_handle(handle)) : 0;
    if (how == 1 || (how == 2 && size < 2)) return -1;
    return REAL(write)(handle, data, how ? size / 2 : size);
}
ssize_t writev(int handle, const struct iovec *parts, int count) { FAIL(of_handle(handle)); return REAL(writev)(handle, parts, count); }
ssize_t pwrite64(int handle, const void *data, size_t size, off64_t at) { FAIL(of_handle(handle)); return REAL(pwrite64)(handle, data, size, at); }
ssize_t pwrite(int handle, const void *data, size_t size, off_t at) { FAIL(of_handle(handle)); return REAL(pwrite)(handle, data, size, at); }
int fsync(int handle) { FAIL(of_handle(handle)); return REAL(fsync)(handle); }
int fdatasync(int handle) { FAIL(of_handle(handle)); return REAL(fdatasync)(handle); }
int posix_fallocate64(int handle, off64_t at, off64_t size) { if (fails(of_handle(handle))) return errno; return REAL(posix_fallocate64)(handle, at, size); }
/* To make a file shorter takes no room, so only longer ones fail. */
static int longer(int handle, off64_t size) { struct stat found; return fstat(handle, &found) == 0 && size > found.st_size; }
int ftruncate64(int handle, off64_t size) { FAIL(longer(handle, size) && of_handle(handle)); return REAL(ftruncate64)(handle, size); }
int ftruncate(int handle, off_t size) { FAIL(longer(handle, size) && of_handle(handle)); return REAL(ftruncate)(handle, size); }
int rename(const char *from, const char *to) { FAIL(below(to)); return REAL(rename)(from, to); }
int renameat(int a, const char *from, int b, const char *to) { FAIL(below(to)); return REAL(renameat)(a, from, b, to); }
int mkdir(const char *path, mode_t mode) { FAIL(below(path)); return REAL(mkdir)(path, mode); }
int link(const char *from, const char *to) { FAIL(below(to)); return REAL(link)(from, to); }
int symlink(const char *from, const char *to) { FAIL(below(to)); return REAL(symlink)(from, to); }

static int makes(const char *path, int flags) {
    struct stat found;
    return (flags & O_CREAT) && below(path) && stat(path, &found) != 0;
}
#define OPEN(name, ...) \
    mode_t mode = 0; \
    if (flags & (O_CREAT | O_TMPFILE)) { va_list more; va_start(more, flags); mode = va_arg(more, mode_t); va_end(more); } \
    FAIL(makes(path, flags)); \
    return REAL(name)(__VA_ARGS__, flags, mode);
int open(const char *path, int flags, ...) { OPEN(open, path) }
int open64(const char *path, int flags, ...) { OPEN(open64, path) }
int openat(int folder, const char *path, int flags, ...) { OPEN(openat, folder, path) }
int openat64(int folder, const char *path, int flags, ...) { OPEN(openat64, folder, path) }
