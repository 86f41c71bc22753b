/* Subscribers and a publisher, to see what a server can do.

   Each worker process holds its share of the subscribers; the parent publishes, over MQTT with
   QoS 1, versions that rise by one. Two ways to publish:

     --window X   the next update leaves when X − 1 times as many deliveries as there are subscribers
                  are under way, at most: with 1, when every subscriber has received the last one;
                  with 1.5, when half of them have. A delivery is under way until the update, or a
                  newer one, was received. So the server is never flooded, and hardly ever idle.
     --rate R     R updates per second, whatever comes of them.

   Written to standard output: "ready" when all are subscribed, "start" and "stop" around the time
   that is measured, and a line of JSON; with --hold, nothing after "ready". Everybody then stays
   connected until standard input ends. Anything unexpected ends the run with a sentence on standard
   error. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "load.h"

#define RING 1024           /* updates under way, at most */
#define OPENING_AT_ONCE 64  /* connections of one worker, so that no listener's queue overflows */
#define CONNECTIONS_PER_S 900 /* of all workers: a node tells more handshakes to come back later */
#define CATCH_UP_NS 10000000
#define MICROSECONDS 2000000
#define ACK_DELAY_NS 50000000
#define STALL_NS 20000000000
#define MAX_WORKERS 64

struct options options = {
    .protocol = "mqtt", .host = "127.0.0.1", .port = 1883, .subscribers = 1000, .workers = 1,
    .topics = 1, .per_client = 1, .clean = 1, .warmup_s = 1, .seconds = 5, .prefix = "load",
    .app = "bench", .first = 1,
};

struct worker {
    _Atomic uint64_t deliveries;
    uint32_t histogram[MICROSECONDS]; /* of the time from publish to receipt */
};

static struct {
    _Atomic int ready, measuring;
    _Atomic uint64_t received;        /* updates × subscribers that hold them or a newer one */
    _Atomic uint64_t wanted;          /* say so when there are as many */
    _Atomic int64_t published_ns[RING];
    struct worker workers[MAX_WORKERS];
} *shared;

static struct worker *me;
static int share;                     /* subscribers of this worker */
static int opening;
static struct conn **acking;          /* a queue: whoever was told first acks first */
static size_t acking_first, acking_count;
static int progress;                  /* an eventfd: as many were received as the publisher wanted */
static const struct protocol *protocol;

void fail(const char *why) {
    fprintf(stderr, "load: %s\n", why);
    exit(1);
}

int64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

void topic_of(const struct conn *conn, int i, char *text, size_t size) {
    int topic = (int)(((uint64_t)conn->number * (uint64_t)options.per_client + (uint64_t)i)
                      % (uint64_t)options.topics);
    snprintf(text, size, "%s/o%d", options.app, topic);
}

static int connected(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    if (inet_pton(AF_INET, options.host, &address.sin_addr) != 1) fail("no address");
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    if (fd < 0) fail("no more sockets: raise the open-file limit");
    if (connect(fd, (struct sockaddr *)&address, sizeof address)) fail("nobody listens there");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

void say(struct conn *conn, const void *data, size_t size) {
    if (send(conn->fd, data, size, MSG_NOSIGNAL) != (ssize_t)size)
        fail("the server does not read what a client sends");
}

void subscribed(struct conn *conn) {
    conn->state = READY;
    opening--;
    atomic_fetch_add(&shared->ready, 1);
}

void received(struct conn *conn, uint64_t version) {
    if (version <= conn->latest) return;
    uint64_t before = conn->latest;
    conn->latest = version;
    if (atomic_load_explicit(&shared->measuring, memory_order_relaxed)) {
        int64_t ns = now_ns() - atomic_load_explicit(&shared->published_ns[version % RING],
                                                     memory_order_relaxed);
        int64_t us = ns / 1000 < MICROSECONDS ? ns / 1000 : MICROSECONDS - 1;
        me->histogram[us]++;
        atomic_fetch_add_explicit(&me->deliveries, 1, memory_order_relaxed);
    }
    uint64_t passed = version - before, sum = atomic_fetch_add(&shared->received, passed) + passed;
    uint64_t wanted = atomic_load(&shared->wanted);
    if (sum >= wanted && sum - passed < wanted) eventfd_write(progress, 1);
}

void ack_later(struct conn *conn) {
    if (conn->ack_due_ns) return;
    conn->ack_due_ns = now_ns() + ACK_DELAY_NS;
    acking[(acking_first + acking_count++) % (size_t)share] = conn;
}

static int ack_what_is_due(void) {
    while (acking_count) {
        struct conn *conn = acking[acking_first];
        int64_t left = conn->ack_due_ns - now_ns();
        if (left > 0) return (int)(left / 1000000) + 1;
        acking_first = (acking_first + 1) % (size_t)share;
        acking_count--;
        conn->ack_due_ns = 0;
        websocket_ack(conn);
    }
    return 1000;
}

static void read_from(struct conn *conn) {
    static uint8_t data[2 * BUFFER_BYTES];
    uint32_t have = conn->have;
    if (have) memcpy(data, conn->buffer, have);
    ssize_t size = recv(conn->fd, data + have, BUFFER_BYTES, 0);
    if (size < 0 && errno == EAGAIN) return;
    if (size <= 0) fail("the server closed a connection");
    size_t all = have + (size_t)size, taken = protocol->take(conn, data, all);
    conn->have = (uint32_t)(all - taken);
    if (conn->have > BUFFER_BYTES) fail("a message that is too long");
    if (conn->have) {
        if (conn->buffer == NULL) conn->buffer = malloc(BUFFER_BYTES);
        memcpy(conn->buffer, data + taken, conn->have);
    } else if (conn->buffer != NULL) {
        free(conn->buffer);
        conn->buffer = NULL;
    }
}

static void work(int number) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    me = &shared->workers[number];
    share = options.subscribers / options.workers + (number < options.subscribers % options.workers);
    struct conn *conns = calloc((size_t)share, sizeof *conns);
    acking = calloc((size_t)share, sizeof *acking);
    int poller = epoll_create1(0), opened = 0;
    struct epoll_event events[256];
    int64_t next_ns = now_ns(), pace_ns = 1000000000LL / CONNECTIONS_PER_S * options.workers;
    for (;;) {
        for (; opened < share && opening < OPENING_AT_ONCE; opening++, opened++) {
            if (next_ns > now_ns()) break;
            if (next_ns < now_ns() - CATCH_UP_NS) next_ns = now_ns() - CATCH_UP_NS;
            next_ns += pace_ns;
            struct conn *conn = &conns[opened];
            conn->fd = connected(options.port);
            conn->state = OPENING;
            conn->number = (uint32_t)(opened * options.workers + number);
            conn->latest = options.first - 1;
            struct epoll_event event = {.events = EPOLLIN, .data.ptr = conn};
            epoll_ctl(poller, EPOLL_CTL_ADD, conn->fd, &event);
            protocol->greet(conn);
        }
        int patience_ms = ack_what_is_due();
        int count = epoll_wait(poller, events, 256, opened < share ? 1 : patience_ms);
        for (int i = 0; i < count; i++) read_from(events[i].data.ptr);
    }
}

/* The publisher. */

static int publisher;
static char topic[128];
static uint64_t next_version, acked;

static void publish(void) {
    uint8_t out[256];
    uint64_t version = next_version++;
    size_t size = mqtt_publish(out, topic, (uint16_t)(1 + version % 65535), version);
    atomic_store(&shared->published_ns[version % RING], now_ns());
    if (send(publisher, out, size, MSG_NOSIGNAL) != (ssize_t)size)
        fail("the server does not read what is published");
}

static void check_workers(void) {
    if (waitpid(-1, NULL, WNOHANG) > 0) exit(1); /* it has said why */
}

/* Until something happens or time is up. */
static void listen_until(int64_t until_ns) {
    struct pollfd waiting[2] = {{publisher, POLLIN, 0}, {progress, POLLIN, 0}};
    int64_t left = until_ns - now_ns();
    struct timespec timeout = {left > 0 ? left / 1000000000 : 0, left > 0 ? left % 1000000000 : 0};
    ppoll(waiting, 2, &timeout, NULL);
    if (waiting[0].revents) {
        uint8_t data[4096];
        ssize_t size = recv(publisher, data, sizeof data, 0);
        if (size <= 0) fail("the server closed the publisher's connection");
        acked += (uint64_t)size / 4; /* nothing but PUBACKs comes here, and they come whole */
    }
    if (waiting[1].revents) {
        eventfd_t count;
        eventfd_read(progress, &count);
    }
    check_workers();
}

static void publish_at_rate(int64_t end_ns) {
    for (int64_t next_ns = now_ns(); now_ns() < end_ns;) {
        if (now_ns() >= next_ns) {
            publish();
            next_ns += (int64_t)(1e9 / options.rate);
        }
        listen_until(next_ns < end_ns ? next_ns : end_ns);
    }
}

static void publish_in_window(int64_t end_ns) {
    uint64_t under_way = (uint64_t)((options.window - 1) * options.subscribers);
    int64_t moved_ns = now_ns();
    for (uint64_t before = 0; now_ns() < end_ns;) {
        uint64_t all = (next_version - options.first) * (uint64_t)options.subscribers;
        atomic_store(&shared->wanted, all < under_way ? 0 : all - under_way);
        uint64_t received = atomic_load(&shared->received);
        if (all - received <= under_way) publish();
        else listen_until(now_ns() + 100000000 < end_ns ? now_ns() + 100000000 : end_ns);
        if (received + acked != before) {
            before = received + acked;
            moved_ns = now_ns();
        } else if (now_ns() - moved_ns > STALL_NS) {
            fail("the server stalled");
        }
    }
}

static void publish_until(int64_t end_ns) {
    if (options.rate > 0) publish_at_rate(end_ns);
    else publish_in_window(end_ns);
}

static double percentile(double part, uint64_t count) {
    uint64_t seen = 0, wanted = (uint64_t)(part * (double)count);
    for (int us = 0; us < MICROSECONDS; us++) {
        for (int i = 0; i < options.workers; i++) seen += shared->workers[i].histogram[us];
        if (seen > wanted) return us;
    }
    return 0;
}

static void report(double seconds, uint64_t published) {
    uint64_t deliveries = 0;
    for (int i = 0; i < options.workers; i++) deliveries += shared->workers[i].deliveries;
    printf("{\"seconds\": %.6f, \"published\": %llu, \"deliveries\": %llu, \"p50_us\": %.0f, "
           "\"p99_us\": %.0f, \"worst_us\": %.0f}\n",
           seconds, (unsigned long long)published, (unsigned long long)deliveries,
           percentile(0.5, deliveries), percentile(0.99, deliveries),
           percentile(1.0 - 1e-9, deliveries));
}

static void measure(void) {
    uint8_t out[256], answer[16];
    char id[80];
    publisher = connected(options.mqtt_port);
    snprintf(id, sizeof id, "%s-publisher", options.prefix);
    snprintf(topic, sizeof topic, "%s/o0", options.app);
    size_t size = mqtt_connect(out, id, 1);
    struct pollfd waiting = {publisher, POLLIN, 0};
    if (send(publisher, out, size, 0) != (ssize_t)size || poll(&waiting, 1, 10000) != 1
        || recv(publisher, answer, sizeof answer, 0) < 4 || answer[3])
        fail("the publisher was refused");
    next_version = options.first;
    publish_until(now_ns() + (int64_t)(options.warmup_s * 1e9));
    puts("start");
    fflush(stdout);
    int64_t began_ns = now_ns();
    uint64_t before = next_version;
    atomic_store(&shared->measuring, 1);
    publish_until(began_ns + (int64_t)(options.seconds * 1e9));
    atomic_store(&shared->measuring, 0);
    double seconds = (double)(now_ns() - began_ns) / 1e9;
    puts("stop");
    fflush(stdout);
    report(seconds, next_version - before);
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
        else if (!strcmp(name, "--window")) options.window = atof(value);
        else if (!strcmp(name, "--rate")) options.rate = atof(value);
        else if (!strcmp(name, "--clean")) options.clean = atoi(value);
        else if (!strcmp(name, "--warmup")) options.warmup_s = atof(value);
        else if (!strcmp(name, "--seconds")) options.seconds = atof(value);
        else if (!strcmp(name, "--prefix")) options.prefix = value;
        else if (!strcmp(name, "--app")) options.app = value;
        else if (!strcmp(name, "--first")) options.first = strtoull(value, NULL, 10);
        else if (!strcmp(name, "--hold")) options.hold = atoi(value);
        else fail("no such option");
    }
    if (!options.mqtt_port) options.mqtt_port = options.port;
    if (options.workers < 1 || options.workers > MAX_WORKERS) fail("too many workers");
    if (options.per_client > 15) fail("too many topics per client");
    if (options.window > RING / 2) fail("too large a window");
}

int main(int argc, char **argv) {
    parse(argc, argv);
    protocol = strcmp(options.protocol, "websocket") ? &mqtt : &websocket;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    progress = eventfd(0, EFD_NONBLOCK);
    if (shared == MAP_FAILED || progress < 0) fail("no memory");
    for (int i = 0; i < options.workers; i++) {
        pid_t child = fork();
        if (child == 0) work(i);
        if (child < 0) fail("no more processes");
    }
    while (atomic_load(&shared->ready) < options.subscribers) {
        usleep(2000);
        check_workers();
    }
    puts("ready");
    fflush(stdout);
    if (!options.hold) measure();
    fflush(stdout);
    while (getchar() != EOF) {}
    return 0; /* the workers end with their parent */
}
