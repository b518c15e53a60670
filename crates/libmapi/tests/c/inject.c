/* Sends packets of a trace onto an interface, which another device captures. argv: trace, interface, capturing device */
#include "check.h"

int main(int argc, char *argv[])
{
    int fd, captured, sent, tries;
    if (argc != 4)
        return 2;
    fd = mapi_create_offline_flow(argv[1], MFF_PCAP);
    FAILS(mapi_apply_function(fd, "INJECT", "nowhere") != -1, 7001);
    OK(mapi_apply_function(fd, "INJECT", "lo") == 1);
    FAILS(mapi_connect(fd) != -1, 8003);
    OK(mapi_close_flow(fd) == 0);
    captured = mapi_create_flow(argv[3]);
    OK(mapi_apply_function(captured, "BPF_FILTER", "udp port 53") == 1);
    OK(mapi_apply_function(captured, "PKT_COUNTER") == 2);
    OK(mapi_apply_function(captured, "BYTE_COUNTER") == 3);
    OK(mapi_connect(captured) == 0);

    fd = mapi_create_offline_flow(argv[1], MFF_PCAP);
    OK(mapi_apply_function(fd, "BPF_FILTER", "udp port 53") == 1);
    sent = mapi_apply_function(fd, "INJECT", argv[2]);
    OK(mapi_apply_function(fd, "PKT_COUNTER") == 3);
    OK(mapi_apply_function(fd, "BYTE_COUNTER") == 4);
    OK(mapi_connect(fd) == 0);
    finish(fd);
    OK(number(fd, sent) == number(fd, 3) && number(fd, sent) > 10);
    for (tries = 0; number(captured, 2) < number(fd, sent) && tries < 500; tries++)
        usleep(10000);
    OK(number(captured, 2) == number(fd, sent) && number(captured, 3) == number(fd, 4));
    printf("sent %llu\n", number(fd, sent));
    OK(mapi_close_flow(fd) == 0 && mapi_close_flow(captured) == 0);
    return 0;
}
