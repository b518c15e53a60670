/* Functions of the program's own, in the program and in a shared library. argv: trace, shared library, device that holds */
#include "check.h"
#include <mapi/binop.h>
#include <mapi/function.h>
#include <mapi/pktinfo.h>

struct every {
    long long of, seen;
};

static int ended;

static int create(const mapi_argument_t *arguments, unsigned count, void **state)
{
    struct every *every;
    if (count != 1 || arguments[0].number < 1)
        return 1;
    every = calloc(1, sizeof *every);
    every->of = arguments[0].number;
    *state = every;
    return 0;
}

static int process(void *state, const struct mapipkt *packet)
{
    struct every *every = state;
    (void)packet;
    return every->seen++ % every->of == 0;
}

static void tell(void *state, void *result)
{
    memcpy(result, &((struct every *)state)->seen, 8);
}

static void destroy(void *state)
{
    ended++;
    free(state);
}

static int pass(void *state, const struct mapipkt *packet)
{
    return state == NULL && packet->caplen > 0;
}

static const mapi_function_t functions[] = {
    {"EVERY", "passes one packet of so many", "i", 1, 8, create, process, tell, destroy},
    {"PASS", "passes packets with bytes", "", 0, 0, NULL, pass, NULL, NULL},
};
static const mapi_function_t clashing[] = {{"BYTE_COUNTER", "", "", 0, 0, NULL, pass, NULL, NULL}};
static const mapi_function_t lettered[] = {{"LETTERED", "", "rf", 0, 0, NULL, pass, NULL, NULL}};
static const mapi_function_t endless[] = {{"ENDLESS", "", "", 0, 8, NULL, pass, NULL, NULL}};
static const mapi_function_t idle[] = {{"IDLE", "", "", 0, 0, NULL, NULL, NULL, NULL}};

static void refuses(const mapi_function_t *functions)
{
    mapi_library_t library = {MAPI_LIBRARY_VERSION, "refused", NULL, 1};
    library.functions = functions;
    FAILS(mapi_add_library(&library) != -1, 7000);
}

static void libraries(const char *path)
{
    static const mapi_library_t mine = {MAPI_LIBRARY_VERSION, "minelib", functions, 2};
    mapi_library_t later = mine;
    mapi_lib_info_t library;
    mapi_libfunct_info_t function;
    int id, loaded;
    later.version = 2;
    FAILS(mapi_add_library(NULL) != -1, 7000);
    FAILS(mapi_add_library(&later) != -1, 7000);
    refuses(clashing);
    refuses(lettered);
    refuses(endless);
    refuses(idle);
    id = mapi_add_library(&mine);
    OK(id == 4);
    FAILS(mapi_add_library(&mine) != -1, 7000);
    FAILS(mapi_load_library("/no/such/library.so") != -1, 6155);
    FAILS(mapi_load_library("libc.so.6") != -1, 6155);
    FAILS(mapi_load_library(NULL) != -1, 6155);
    loaded = mapi_load_library(path);
    OK(loaded == 5);
    OK(mapi_get_library_info(id, &library) == 0 && strcmp(library.libname, "minelib") == 0 && library.functs == 2);
    OK(mapi_get_next_libfunct_info(loaded, -1, &function) == 0 && strcmp(function.name, "TALLY") == 0);
    OK(strcmp(function.argdescr, "s") == 0);
}

static void wrong(const char *device)
{
    int fd = mapi_create_flow(device);
    OK(mapi_apply_function(fd, "PKT_COUNTER") == 1);
    FAILS(mapi_apply_function(fd, "EVERY") != -1, 7001);
    FAILS(mapi_apply_function(fd, "EVERY", 0) != -1, 7001);
    FAILS(mapi_apply_function(fd, "TALLY", "some") != -1, 7001);
    OK(mapi_apply_function(fd, "minelib:EVERY", 2) == 2);
    OK(mapi_apply_function(fd, "PASS") == 3);
    /* What runs in the sensor has its place before. */
    FAILS(mapi_apply_function(fd, "BYTE_COUNTER") != -1, 7000);
    FAILS(mapi_apply_function(fd, "BINOP", ADD, fd, 1, fd, 2) != -1, 6147);
    OK(mapi_apply_function(fd, "TO_BUFFER", NOWAIT) == 4);
    FAILS(mapi_apply_function(fd, "TO_BUFFER", NOWAIT) != -1, 7000);
    FAILS(mapi_apply_function(fd, "PASS") != -1, 7000);
    FAILS(mapi_read_results(fd, 2) != NULL, 6143);
    OK(mapi_connect(fd) == 0);
    OK(number(fd, 2) == 0 && mapi_get_next_pkt(fd, 4) == NULL);
    FAILS(mapi_read_results(fd, 3) != NULL, 6147);
    OK(mapi_close_flow(fd) == 0);
    fd = mapi_create_flow(device);
    OK(mapi_apply_function(fd, "EVERY", 2) == 1);
    FAILS(mapi_apply_function(fd, "BUCKET", fd, 1, "1s", 1) != -1, 6147);
    OK(mapi_close_flow(fd) == 0);
}

int main(int argc, char *argv[])
{
    unsigned long long *tally, bytes = 0;
    struct mapipkt *packet;
    mapi_function_info_t info;
    int fd, every, sum, buffer, all, count = 0;
    if (argc != 4)
        return 2;
    libraries(argv[2]);
    wrong(argv[3]);

    fd = mapi_create_offline_flow(argv[1], MFF_PCAP);
    OK(mapi_apply_function(fd, "BPF_FILTER", "tcp") == 1);
    all = mapi_apply_function(fd, "PKT_COUNTER");
    every = mapi_apply_function(fd, "EVERY", 3);
    sum = mapi_apply_function(fd, "TALLY", "all");
    buffer = mapi_apply_function(fd, "TO_BUFFER", WAIT);
    OK(buffer == 5 && mapi_connect(fd) == 0);
    while ((packet = mapi_get_next_pkt(fd, buffer)) != NULL) {
        bytes += packet->caplen;
        count++;
    }
    tally = result(fd, sum);
    OK(tally[0] == (unsigned long long)count && tally[1] == bytes);
    printf("read %d %llu of %llu, %llu\n", count, bytes, number(fd, every), number(fd, all));
    OK(mapi_get_function_info(fd, every, &info) == 0 && info.pkts == number(fd, all));
    OK(info.passed_pkts == tally[0] && info.result_size == 8 && strcmp(info.libname, "minelib") == 0);
    OK(mapi_close_flow(fd) == 0);

    /* Without somebody who reads packets, they run as packets come. */
    fd = mapi_create_offline_flow(argv[1], MFF_PCAP);
    sum = mapi_apply_function(fd, "TALLY");
    OK(mapi_connect(fd) == 0);
    finish(fd);
    tally = result(fd, sum);
    printf("tally %llu %llu\n", tally[0], tally[1]);
    OK(mapi_close_flow(fd) == 0);
    OK(ended == 3);
    return 0;
}
