/* Subscribers and a publisher, told line by line what to do.

   Each worker process holds its share of the subscribers; the parent publishes versions that rise by
   one, to one topic after the other, so that a version tells its topic. It obeys commands from
   standard input, one at a time, and answers each with a line of JSON:

     connect        everybody connects and subscribes
     leave          everybody closes the connection, without a word
     window X S     for S seconds: the next update leaves when X − 1 updates are under way, at most:
                    with 1, when all of its subscribers have received the last one; with 1.5, when
                    half of them have. An update is under way to a subscriber until it, or a newer
                    one, was received. So the server is never flooded, and hardly ever idle.
     rate R S       for S seconds, R updates per second, whatever comes of them
     publish N F    N updates, of which at most F have not been accepted by the server
     until-lost R   R updates per second until the server is gone
     fresh Q        until everybody holds the newest version of everything, or nothing has happened
                    for Q seconds

   Two clocks say when an update is received. By the kernel's it has reached the socket of its
   subscriber: how long it then waits there until one of a thousand clients in this process is read
   from says nothing about the server. By the program's it has been read: what a client notices that
   shares its core with so many.

   It ends with standard input. Anything unexpected ends it with a sentence on standard error. With
   --reconnect 1, a lost connection is expected. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "load.h"

#define STALL_NS 60000000000
#define CURVE_STEPS 200

struct options options = {
    .protocol = "mqtt", .host = "127.0.0.1", .port = 1883, .subscribers = 1000, .workers = 1,
    .topics = 1, .per_client = 1, .clean = 1, .pace = 900, .prefix = "load", .app = "bench",
    .first = 1,
};

struct shared *shared;
_Atomic uint64_t *all_latest;
int progress;

void fail(const char *why) {
    fprintf(stderr, "load: %s\n", why);
    exit(1);
}

static int64_t clock_ns(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

int64_t now_ns(void) {
    return clock_ns(CLOCK_MONOTONIC);
}

int64_t wall_ns(void) {
    return clock_ns(CLOCK_REALTIME);
}

int topic_of(uint32_t subscriber, int i) {
    return (int)(((uint64_t)subscriber * (uint64_t)options.per_client + (uint64_t)i)
                 % (uint64_t)options.topics);
}

size_t topic_name(int topic, char *text, size_t size) {
    return (size_t)snprintf(text, size, "%s/o%d", options.app, topic);
}

int topic_of_version(uint64_t version) {
    return (int)((version - options.first) % (uint64_t)options.topics);
}

void check_workers(void) {
    if (waitpid(-1, NULL, WNOHANG) > 0) exit(1); /* it has said why */
}

/* Subscribers × topics for which the newest version is not there. */
static uint64_t stale(void) {
    uint64_t count = 0, topics = (uint64_t)options.topics;
    for (int number = 0; number < options.subscribers; number++) {
        for (int i = 0; i < options.per_client; i++) {
            uint64_t topic = (uint64_t)topic_of((uint32_t)number, i);
            if (next_version <= options.first + topic) continue; /* nothing was published to it */
            uint64_t rounds = (next_version - 1 - options.first - topic) / topics;
            uint64_t newest = options.first + topic + rounds * topics;
            count += all_latest[number * options.per_client + i] < newest;
        }
    }
    return count;
}

/* Deliveries that took so many microseconds, over all workers. */
static uint64_t at_delay(int clock, int us) {
    uint64_t count = 0;
    for (int i = 0; i < options.workers; i++) count += shared->workers[i].histogram[clock][us];
    return count;
}

/* At equal steps from the fastest to the slowest, by the kernel's clock. */
static void print_curve(uint64_t count) {
    uint64_t seen = 0;
    int step = 0;
    printf("\"percentiles_us\": [");
    for (int us = 0; us < MICROSECONDS && count; us++) {
        seen += at_delay(KERNEL, us);
        for (; step <= CURVE_STEPS && seen * CURVE_STEPS >= (uint64_t)step * count && seen; step++)
            printf(step ? ", %d" : "%d", us);
    }
    printf("]");
}

static double percentile(int clock, double part, uint64_t count) {
    uint64_t seen = 0, wanted = (uint64_t)(part * (double)count);
    for (int us = 0; us < MICROSECONDS; us++) {
        seen += at_delay(clock, us);
        if (seen > wanted) return us;
    }
    return 0;
}

static double mean(int clock, uint64_t count) {
    double sum = 0;
    for (int us = 0; us < MICROSECONDS; us++) sum += us * (double)at_delay(clock, us);
    return sum / (double)(count ? count : 1);
}

static void answer(int64_t began_ns, int64_t ended_ns, uint64_t published) {
    uint64_t deliveries = 0, messages = 0, bytes = 0;
    for (int i = 0; i < options.workers; i++) {
        deliveries += shared->workers[i].deliveries;
        messages += shared->workers[i].messages;
        bytes += shared->workers[i].bytes;
    }
    printf("{\"began\": %.6f, \"ended\": %.6f, \"published\": %llu, \"deliveries\": %llu, "
           "\"messages\": %llu, \"bytes\": %llu, \"stale\": %llu, \"mean_us\": %.1f, "
           "\"p50_us\": %.0f, \"p99_us\": %.0f, \"worst_us\": %.0f, \"program_mean_us\": %.1f, "
           "\"program_p50_us\": %.0f, \"program_p99_us\": %.0f, ",
           (double)began_ns / 1e9, (double)ended_ns / 1e9, (unsigned long long)published,
           (unsigned long long)deliveries, (unsigned long long)messages, (unsigned long long)bytes,
           (unsigned long long)stale(), mean(KERNEL, deliveries),
           percentile(KERNEL, 0.5, deliveries), percentile(KERNEL, 0.99, deliveries),
           percentile(KERNEL, 1.0 - 1e-9, deliveries), mean(PROGRAM, deliveries),
           percentile(PROGRAM, 0.5, deliveries), percentile(PROGRAM, 0.99, deliveries));
    print_curve(deliveries);
    puts("}");
    fflush(stdout);
}

static void wait_until_ready(int count) {
    while (atomic_load(&shared->ready) != count) {
        usleep(200);
        check_workers();
        if (now_ns() - shared->moved_ns > STALL_NS) fail("clients cannot connect");
    }
}

static void start_measuring(void) {
    for (int i = 0; i < options.workers; i++) {
        shared->workers[i].deliveries = 0;
        memset((void *)shared->workers[i].histogram, 0, sizeof shared->workers[i].histogram);
    }
    atomic_store(&shared->measuring, 1);
}

static void obey(const char *line) {
    double a = 0, b = 0;
    char command[32];
    if (sscanf(line, "%31s %lf %lf", command, &a, &b) < 1) fail("an empty command");
    int measured = !strcmp(command, "window") || !strcmp(command, "rate");
    if (measured) start_measuring();
    uint64_t before = next_version;
    int64_t began_ns = now_ns(), ended_ns = 0;
    if (!strcmp(command, "connect") || !strcmp(command, "leave")) {
        int leave = command[0] == 'l';
        atomic_store(&shared->moved_ns, began_ns);
        atomic_store(&shared->away, leave);
        wait_until_ready(leave ? 0 : options.subscribers);
    } else if (!strcmp(command, "window")) publish_in_window(a, b);
    else if (!strcmp(command, "rate")) publish_at_rate(a, b);
    else if (!strcmp(command, "until-lost")) publish_until_lost(a);
    else if (!strcmp(command, "publish")) publish_count((uint64_t)a, (uint64_t)b);
    else if (!strcmp(command, "fresh")) {
        wait_until_held(a);
        ended_ns = shared->moved_ns > began_ns ? shared->moved_ns : began_ns;
    } else fail("no such command");
    if (!ended_ns) ended_ns = now_ns();
    atomic_store(&shared->measuring, 0);
    answer(began_ns, ended_ns, next_version - before);
}

static void parse(int argc, char **argv) {
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];
        if (!strcmp(name, "--protocol")) options.protocol = value;
        else if (!strcmp(name, "--host")) options.host = value;
        else if (!strcmp(name, "--port")) options.port = atoi(value);
        else if (!strcmp(name, "--mqtt-port")) options.mqtt_port = atoi(value);
        else if (!strcmp(name, "--subscribers")) options.subscribers = atoi(value);
        else if (!strcmp(name, "--workers")) options.workers = atoi(value);
        else if (!strcmp(name, "--topics")) options.topics = atoi(value);
        else if (!strcmp(name, "--per-client")) options.per_client = atoi(value);
        else if (!strcmp(name, "--clean")) options.clean = atoi(value);
        else if (!strcmp(name, "--retain")) options.retain = atoi(value);
        else if (!strcmp(name, "--reconnect")) options.reconnect = atoi(value);
        else if (!strcmp(name, "--pace")) options.pace = atoi(value);
        else if (!strcmp(name, "--prefix")) options.prefix = value;
        else if (!strcmp(name, "--app")) options.app = value;
        else if (!strcmp(name, "--first")) options.first = strtoull(value, NULL, 10);
        else fail("no such option");
    }
    if (options.workers < 1 || options.workers > MAX_WORKERS) fail("too many workers");
    int lists_are_long = !strcmp(options.protocol, "kv") || !strcmp(options.protocol, "streams")
                         || !strcmp(options.protocol, "websocket");
    if (options.per_client > (lists_are_long ? 15 : 64))
        fail("too many topics per client");
    if (options.per_client > options.topics) fail("too few topics");
    if ((int64_t)options.subscribers * options.per_client % options.topics)
        fail("each topic needs as many subscribers as the others");
}

static const struct protocol *named(const char *name) {
    if (!strcmp(name, "mqtt")) return &mqtt;
    if (!strcmp(name, "websocket")) return &websocket;
    if (!strcmp(name, "nats")) return &nats;
    if (!strcmp(name, "kv")) return &kv;
    if (!strcmp(name, "redis")) return &redis;
    if (!strcmp(name, "streams")) return &streams;
    fail("no such protocol");
    return NULL;
}

static void *shared_memory(size_t size) {
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) fail("no memory");
    return memory;
}

int main(int argc, char **argv) {
    parse(argc, argv);
    signal(SIGPIPE, SIG_IGN);
    const struct protocol *protocol = named(options.protocol);
    size_t topics = (size_t)options.subscribers * (size_t)options.per_client;
    shared = shared_memory(sizeof *shared + (size_t)options.workers * sizeof *shared->workers);
    all_latest = shared_memory(topics * sizeof *all_latest + 1);
    for (size_t i = 0; i < topics; i++) all_latest[i] = options.first - 1;
    shared->away = 1;
    next_version = options.first;
    progress = eventfd(0, EFD_NONBLOCK);
    if (progress < 0) fail("no eventfd");
    pid_t parent = getpid();
    for (int i = 0; i < options.workers; i++) {
        pid_t child = fork();
        if (child == 0) work(i, parent, protocol);
        if (child < 0) fail("no more processes");
    }
    if (protocol == &websocket) use_publisher(&mqtt, options.mqtt_port);
    else use_publisher(protocol, options.port);
    char line[128];
    while (fgets(line, sizeof line, stdin)) obey(line);
    return 0; /* the workers end with their parent */
}
