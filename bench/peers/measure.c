/* Runs a command and writes what it cost.
 * usage: measure RESULT SECONDS COMMAND ARGUMENT...
 * RESULT gets one line: exit status (128 + signal when killed), user and system microseconds, peak
 * resident KB. A process of its own because a child's peak starts at the size of whoever forks it,
 * and a Python interpreter is larger than most of what is measured. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t child;

static void on_alarm(int number) {
  (void)number;
  kill(child, SIGKILL);
}

int main(int argc, char **argv) {
  if (argc < 4) {
    fprintf(stderr, "usage: %s RESULT SECONDS COMMAND ARGUMENT...\n", argv[0]);
    return 2;
  }
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
