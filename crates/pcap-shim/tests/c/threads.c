/*
 * Usage: threads cancel|fork INTERFACE
 *
 *   cancel   a thread that waits for packets is cancelled
 *   fork     children ask for statistics and close the handle, while the parent captures
 */
#include <pcap/pcap.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static pcap_t *handle;

static void ignore(u_char *user, const struct pcap_pkthdr *header, const u_char *data)
{
    (void)user, (void)header, (void)data;
}

static void *run(void *nothing)
{
    pcap_loop(handle, -1, ignore, NULL);
    return nothing;
}

static int cancel(void)
{
    pthread_t thread;
    void *result = NULL;
    if (pthread_create(&thread, NULL, run, NULL) != 0)
        return 3;
    usleep(200000);
    if (pthread_cancel(thread) != 0 || pthread_join(thread, &result) != 0)
        return 4;
    puts(result == PTHREAD_CANCELED ? "cancelled" : "returned");
    return 0;
}

static int children(void)
{
    for (int at = 0; at < 200; at++) {
        struct pcap_stat stat;
        int status;
        if (pcap_dispatch(handle, 10, ignore, NULL) < 0)
            return 3;
        pid_t child = fork();
        if (child == 0) {
            alarm(10);
            if (pcap_stats(handle, &stat) != 0)
                _exit(4);
            pcap_close(handle);
            _exit(0);
        }
        if (waitpid(child, &status, 0) != child || status != 0)
            return 5;
    }
    puts("forked");
    return 0;
}

int main(int count, char **arguments)
{
    char message[PCAP_ERRBUF_SIZE];
    handle = count == 3 ? pcap_open_live(arguments[2], 100, 0, 10, message) : NULL;
    if (handle == NULL)
        return 2;
    int status = strcmp(arguments[1], "fork") == 0 ? children() : cancel();
    pcap_close(handle);
    return status;
}
