/* Runs a command and writes what it cost.
 * usage: measure RESULT SECONDS COMMAND ARGUMENT...
 * RESULT gets one line: exit status (128 + signal when killed), user and system microseconds, peak
 * resident KB. A process of its own because a child's peak starts at the size of whoever forks it,
 * and a Python interpreter is larger than most of what is measured.
 *
 * In a virtual machine memory that nobody used for a while may be the host's again: whoever touches it
 * first pays for its return, up to half a second for what some of these commands take, and the next one
 * nothing. So memory is touched here first. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* At most; half of what is free where that is less. */
static const size_t WARM = (size_t)1 << 29;

static pid_t child;

/* Bytes that can be had without anybody losing theirs; 0 where nobody says. */
static size_t available_memory(void) {
  char line[128];
  size_t kilobytes = 0;
  FILE *file = fopen("/proc/meminfo", "r");
  if (!file)
    return 0;
  while (fgets(line, sizeof line, file) && sscanf(line, "MemAvailable: %zu", &kilobytes) != 1)
    continue;
  fclose(file);
  return kilobytes << 10;
}

/* Touches what the command may take, as far as there is so much. */
static void warm_memory(void) {
  size_t half = available_memory() / 2;
  size_t size = half < WARM ? half : WARM;
  if (size == 0)
    return;
  void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return;
  madvise(memory, size, MADV_HUGEPAGE);
  memset(memory, 1, size);
  munmap(memory, size);
}

static void on_alarm(int number) {
  (void)number;
  kill(child, SIGKILL);
}

int main(int argc, char **argv) {
  if (argc < 4) {
    fprintf(stderr, "usage: %s RESULT SECONDS COMMAND ARGUMENT...\n", argv[0]);
    return 2;
  }
  warm_memory();
  child = fork();
  if (child < 0) {
    perror("fork");
    return 1;
  }
  if (child == 0) {
    execvp(argv[3], argv + 3);
    perror(argv[3]);
    _exit(127);
  }
  signal(SIGALRM, on_alarm);
  alarm((unsigned)atoi(argv[2]));
  int status = 0;
  struct rusage usage;
  while (wait4(child, &status, 0, &usage) < 0) {
  }
  FILE *result = fopen(argv[1], "w");
  if (!result) {
    perror(argv[1]);
    return 1;
  }
  fprintf(result, "%d %lld %lld %ld\n", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          usage.ru_utime.tv_sec * 1000000LL + usage.ru_utime.tv_usec,
          usage.ru_stime.tv_sec * 1000000LL + usage.ru_stime.tv_usec, usage.ru_maxrss);
  return fclose(result) != 0;
}
