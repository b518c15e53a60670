/*
 * mapi.h - MAPI, the Monitoring API of the DiMAPI thesis (2007), implemented by Flowgauge's sensor.
 *
 *   cc program.c $(pkg-config --cflags --libs mapi)
 *
 * Programs written for the published MAPI compile and run unchanged. Extensions are marked [ours]. Valid C99 and C++11, and later
 * versions of both.
 *
 * A flow is a device and a pipeline of functions, in the order in which they are applied. Each function receives the packets that the
 * preceding one passes. mapi_connect() starts the flow.
 *
 *   int fd = mapi_create_flow("eth0");
 *   mapi_apply_function(fd, "BPF_FILTER", "tcp port 80");
 *   int fid = mapi_apply_function(fd, "PKT_COUNTER");
 *   mapi_connect(fd);
 *   sleep(1);
 *   mapi_results_t *result = mapi_read_results(fd, fid);
 *   printf("%llu\n", *(unsigned long long *)result->res);
 *   mapi_close_flow(fd);
 *
 * ERRORS. Functions return -1 or NULL on error; mapi_connect() returns -1 if the user is not authorised and -2 on any other error.
 * mapi_read_error() returns the last error of the calling thread and clears it.
 *
 * RESULTS belong to the library. A result is valid until the function is read again or its flow is closed.
 *
 * SCOPES. A name with a colon is a device of another machine: "host:eth0", "host:2233:eth0", "[2001:db8::1]:eth0". Several devices and
 * scopes ("host1:eth0, host2:eth1, campus/eth0") are the members of one flow; a result is an array with an entry per member, in this
 * order. If a member is down or late, its res points to zeros, and its ts and size are 0; the others are not affected.
 *
 * UNITS. Times in packets and results are seconds since 1970 in 32.32 fixed point; mapi_results_t.ts is microseconds since 1970.
 *
 * THREADS. All functions are thread-safe. After fork(), the child cannot use its parent's flows and devices; it must create its own.
 */
#ifndef _MAPI_H
#define _MAPI_H 1

#include <sys/ipc.h>
#include <sys/types.h>
#include <syslog.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PAPI 10

#ifndef TRUE
#define TRUE 1
#endif
#ifndef FALSE
#define FALSE 0
#endif

typedef int boolean_t;

#define MAPI_STR_LENGTH 256
#define MAPI_ERRORSTR_LENGTH 512

/* Kinds of arguments. */
#define INT 1
#define STRING 2
#define UNSIGNED_LONG_LONG 3
#define CHAR 4

#define DEFAULT_DIMAPI_PORT 2233

#ifdef __GNUC__
#define MAPI_UNUSED __attribute__((__unused__))
#else
#define MAPI_UNUSED
#endif

/* Formats of trace files. The actual format is detected, whichever is given. */
enum mapi_file_formats { MFF_PCAP, MFF_RAW, MFF_DAG_ERF, MFF_COMBO6, MFF_NAPATECH };
#define MFF_PCAP_STR "MFF_PCAP"
#define MFF_DAG_ERF_STR "MFF_DAG_ERF"
#define MFF_NAPATECH_STR "MFF_NAPATECH"

enum mapi_read_result_method { MAPI_COPY, MAPI_REF };

/* Argument of COOKING: whose data to pass. */
enum cooking_direction { CLIENT_SIDE = 1, SERVER_SIDE, BOTH_SIDE };

/* Argument of TO_BUFFER: what mapi_get_next_pkt() does when no packet is waiting. */
enum toba_flg { WAIT = 0, NOWAIT };

typedef enum mapi_offline_device_status {
    DEVICE_ONLINE,
    DEVICE_SETUP,
    DEVICE_READING,
    DEVICE_FINISHED,
    DEVICE_DELETED
} mapi_offline_device_status_t;

enum mapi_flow_status {
    FLOW_INIT,     /* not connected */
    FLOW_ACTIVE,   /* connected */
    FLOW_FINISHED, /* its trace file has been read to the end */
    FLOW_CLOSED
};

typedef struct mapi_flow_info {
    uid_t uid;
    int fd;
    int devid;
    char device[MAPI_STR_LENGTH];
    unsigned num_functions;
    time_t start;
    time_t end;
    enum mapi_flow_status status;
} mapi_flow_info_t;

typedef struct mapi_function_info {
    int fid;
    char name[MAPI_STR_LENGTH];
    char libname[MAPI_STR_LENGTH];
    char devtype[MAPI_STR_LENGTH];
    unsigned long long pkts;        /* received */
    unsigned long long passed_pkts; /* passed on */
    int result_size;
} mapi_function_info_t;

typedef struct mapi_device_info {
    int id;
    char device[MAPI_STR_LENGTH];
    char name[MAPI_STR_LENGTH];
    char alias[MAPI_STR_LENGTH];
    char description[1024];
    int link_speed; /* Mbit/s */
    int mpls;
    int vlan;
} mapi_device_info_t;

typedef struct mapi_lib_info {
    int id;
    char libname[MAPI_STR_LENGTH];
    unsigned int functs;
} mapi_lib_info_t;

typedef struct mapi_libfunct_info {
    char name[MAPI_STR_LENGTH];
    char descr[1024];
    char argdescr[MAPI_STR_LENGTH];
    char devtype[MAPI_STR_LENGTH];
} mapi_libfunct_info_t;

/* [ours] State of a member of a scope. */
enum mapi_member_state {
    MAPI_MEMBER_OK,
    MAPI_MEMBER_DOWN,    /* its sensor is unreachable and will be retried */
    MAPI_MEMBER_REFUSED, /* its sensor lacks the device or a function, or the user is not authorised */
    MAPI_MEMBER_LATE     /* its sensor did not answer within a second */
};

typedef struct mapi_member_info {
    char name[MAPI_STR_LENGTH];
    enum mapi_member_state state;
    time_t since;                      /* time of the last change of state */
    unsigned generation;               /* how often its flow was set up; results restart with each generation */
    char reason[MAPI_ERRORSTR_LENGTH]; /* reason if the state is not ok */
} mapi_member_info_t;

/* [ours] Options of flows with members on other machines, for mapi_set_option(); without effect on local flows. */
enum mapi_option {
    MAPI_PUSH_INTERVAL = 1, /* interval in ms at which members send their results; 0 (default): every read queries the members */
    MAPI_PREFETCH,          /* bytes of packets that a member may send ahead; default 4194304 */
    MAPI_MERGE_BY_TIME      /* deliver packets in order of capture, waiting this many ms for interfaces; 0 (default): members in turn */
};

struct mapi_stat {
    unsigned int ps_recv;
    unsigned int ps_drop;
    unsigned int ps_ifdrop;
    char hostname[MAPI_STR_LENGTH];
    char dev[MAPI_STR_LENGTH];
};

/* A packet; its captured bytes start at pkt. */
struct mapipkt {
    unsigned long long ts;
    unsigned short ifindex;
    unsigned caplen;
    unsigned wlen;
    unsigned char pkt;
};

typedef struct mapi_results {
    void *res;
    unsigned long long ts;
    int size;
} mapi_results_t;

typedef void (*mapi_handler)(const struct mapipkt *);

int mapi_create_flow(const char *dev);
char *mapi_create_offline_device(const char *path, int format);
int mapi_start_offline_device(const char *dev);
int mapi_delete_offline_device(char *dev);
int mapi_create_offline_flow(const char *path, int format);

/* [ours] Add functions that run in the program, see <mapi/function.h>. Both return the library's number. */
struct mapi_library;
int mapi_add_library(const struct mapi_library *library);
int mapi_load_library(const char *path);

int mapi_apply_function(int fd, const char *funct, ...);
int mapi_apply_function_array(int fd, const char *funct, char **args, unsigned n);
/* [ours] As mapi_apply_function(); count is the number of arguments after funct. */
int mapi_apply_function_counted(int fd, int count, const char *funct, ...);

int mapi_connect(int fd);
mapi_results_t *mapi_read_results(int fd, int fid);
struct mapipkt *mapi_get_next_pkt(int fd, int fid);
struct mapipkt *mapi_get_next_packet(int fd, int fid);
int mapi_loop(int fd, int fid, int cnt, mapi_handler handler);
int mapi_close_flow(int fd);

int mapi_read_error(int *err_no, char *errorstr);

int mapi_get_scope_size(int fd);
int mapi_is_remote(int fd);
int mapi_is_sensor_down(int fd);
/* [ours] Members are counted from 0, in the order of the scope. */
int mapi_get_member_info(int fd, int member, mapi_member_info_t *info);
/* [ours] Generation of the last result read from a function and member; 0 if there was no result. */
int mapi_get_result_generation(int fd, int fid, int member);
int mapi_set_option(int fd, enum mapi_option option, unsigned long long value);
int mapi_set_authdata(int fd, const char *credential);
int mapi_authenticate(int fd, const char *user, const char *password, const char *vo);

int mapi_get_flow_info(int fd, mapi_flow_info_t *info);
int mapi_get_next_flow_info(int fd, mapi_flow_info_t *info);
int mapi_get_function_info(int fd, int fid, mapi_function_info_t *info);
int mapi_get_next_function_info(int fd, int fid, mapi_function_info_t *info);
int mapi_get_device_info(int device, mapi_device_info_t *info);
int mapi_get_next_device_info(int device, mapi_device_info_t *info);
int mapi_get_library_info(int library, mapi_lib_info_t *info);
int mapi_get_next_library_info(int library, mapi_lib_info_t *info);
int mapi_get_libfunct_info(int library, int function, mapi_libfunct_info_t *info);
int mapi_get_next_libfunct_info(int library, int function, mapi_libfunct_info_t *info);
int mapi_stats(const char *dev, struct mapi_stat *stats);

/* Programs may omit trailing arguments, which a C function cannot detect; this macro counts them. Calls through a function pointer must
 * pass all arguments. */
#define mapi_apply_function(fd, ...) \
    mapi_apply_function_counted(fd, MAPI_COUNT_(__VA_ARGS__, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0), __VA_ARGS__)
#define MAPI_COUNT_(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, count, ...) count

#ifdef __cplusplus
}
#endif

#endif
