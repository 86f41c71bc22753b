/* The subscribers of one worker: they connect, note what they receive, and come back. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
#include "load.h"

#define OPENING_AT_ONCE 64  /* connections of one worker, so that no listener's queue overflows */
#define CATCH_UP_NS 10000000
#define AGAIN_NS 100000000  /* from a lost or refused connection to the next */
#define ACK_DELAY_NS 50000000

static struct worker *me;
static int share;                     /* subscribers of this worker */
static int opening;
static struct conn **to_open;         /* a queue, and so is the next */
static size_t to_open_first, to_open_count;
static struct conn **acking;          /* whoever was told first acks first */
static size_t acking_first, acking_count;
static int64_t arrived_ns;            /* what is being read, by the clock on the wall */

int connected(int port, int number) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    if (fd < 0) fail("no more sockets: raise the open-file limit");
    /* A worker has its own address, so that ports last for all of them. */
    address.sin_addr.s_addr = htonl(0x7f000001u + (uint32_t)number);
    address.sin_port = 0;
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&address, sizeof address)) fail("no such loopback address");
    address.sin_port = htons((uint16_t)port);
    if (inet_pton(AF_INET, options.host, &address.sin_addr) != 1) fail("no address");
    if (connect(fd, (struct sockaddr *)&address, sizeof address)) {
        close(fd);
        return -1;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

void say(struct conn *conn, const void *data, size_t size) {
    ssize_t sent = send(conn->fd, data, size, MSG_NOSIGNAL);
    if (sent != (ssize_t)size && (sent >= 0 || errno == EAGAIN))
        fail("the server does not read what a client sends");
    /* any other error is found when it is read from */
}

static void moved(void) {
    atomic_store_explicit(&shared->moved_ns, now_ns(), memory_order_relaxed);
}

void subscribed(struct conn *conn) {
    if (conn->publishes || conn->state == READY) {
        conn->state = READY;
        return;
    }
    conn->state = READY;
    conn->known = 1;
    opening--;
    atomic_fetch_add(&shared->ready, 1);
    moved();
}

static void note(int clock, int64_t delay_ns) {
    int64_t us = delay_ns / 1000;
    if (us < 0) us = 0; /* the clock was set */
    me->histogram[clock][us < MICROSECONDS ? us : MICROSECONDS - 1]++;
}

void received(struct conn *conn, uint64_t version) {
    me->messages++;
    if (version < options.first) return;
    int topics = options.topics;
    int i = topic_of_version(version) - topic_of(conn->number, 0);
    if (i < 0) i += topics;
    if (i >= options.per_client) fail("an update that this client is not subscribed to");
    uint64_t before = conn->latest[i];
    if (version <= before) return;
    conn->latest[i] = version;
    if (atomic_load_explicit(&shared->measuring, memory_order_relaxed)) {
        int64_t published_ns = shared->published_ns[version % RING];
        note(KERNEL, arrived_ns - published_ns);
        note(PROGRAM, wall_ns() - published_ns);
        me->deliveries++;
    }
    /* Versions of one topic are `topics` apart, and the first of all is not far from `before`. */
    uint64_t passed = (version - before + (uint64_t)topics - 1) / (uint64_t)topics;
    uint64_t sum = atomic_fetch_add(&shared->held, passed) + passed;
    uint64_t wanted = atomic_load(&shared->wanted);
    moved();
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
        if (conn->state == READY) websocket_ack(conn);
    }
    return 1000;
}

/* As `recv`, and notes when it came. */
static ssize_t receive(int fd, void *data, size_t room) {
    struct iovec where = {data, room};
    char stamp[CMSG_SPACE(sizeof(struct timespec))];
    struct msghdr message = {.msg_iov = &where, .msg_iovlen = 1,
                             .msg_control = stamp, .msg_controllen = sizeof stamp};
    ssize_t size = recvmsg(fd, &message, 0);
    struct cmsghdr *found = size > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    if (found != NULL && found->cmsg_type == SO_TIMESTAMPNS) {
        struct timespec time;
        memcpy(&time, CMSG_DATA(found), sizeof time);
        arrived_ns = (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
    } else { /* the kernel takes a moment to begin */
        arrived_ns = wall_ns();
    }
    return size;
}

ssize_t read_from(struct conn *conn, const struct protocol *protocol) {
    static uint8_t data[2 * MESSAGE_BYTES];
    uint32_t have = conn->have;
    if (have) memcpy(data, conn->part, have);
    ssize_t size = receive(conn->fd, data + have, MESSAGE_BYTES);
    if (size < 0 && errno == EAGAIN) return 1;
    if (size <= 0) return size;
    if (me) me->bytes += (uint64_t)size;
    size_t all = have + (size_t)size, taken = protocol->take(conn, data, all);
    if (conn->state == CLOSED) return size; /* it was refused */
    conn->have = (uint32_t)(all - taken);
    if (conn->have > MESSAGE_BYTES) fail("a message that is too long");
    free(conn->part);
    conn->part = NULL;
    if (conn->have) {
        conn->part = malloc(conn->have);
        memcpy(conn->part, data + taken, conn->have);
    }
    return size;
}

static void queue_up(struct conn *conn, int64_t delay_ns) {
    conn->open_ns = now_ns() + delay_ns;
    to_open[(to_open_first + to_open_count++) % (size_t)share] = conn;
}

static void end(struct conn *conn) {
    if (conn->state == READY) {
        atomic_fetch_sub(&shared->ready, 1);
        moved();
    } else if (conn->state != CLOSED) {
        opening--;
    }
    close(conn->fd);
    free(conn->part);
    conn->part = NULL;
    conn->have = conn->confirmed = 0;
    conn->session = conn->messages = conn->digest_count = 0;
    conn->state = CLOSED;
}

void refused(struct conn *conn) {
    if (conn->publishes) { /* who tries again by itself */
        conn->state = CLOSED;
        return;
    }
    end(conn);
    queue_up(conn, AGAIN_NS);
}

static void lost(struct conn *conn) {
    if (!options.reconnect) fail("the server closed a connection");
    end(conn);
    queue_up(conn, AGAIN_NS);
}

static void open_some(int poller, int number, const struct protocol *protocol) {
    static int64_t next_ns;
    int64_t now = now_ns();
    if (next_ns < now - CATCH_UP_NS) next_ns = now - CATCH_UP_NS;
    while (to_open_count && opening < OPENING_AT_ONCE) {
        struct conn *conn = to_open[to_open_first];
        if (options.pace && next_ns > now) break;
        if (conn->open_ns > now) break;
        to_open_first = (to_open_first + 1) % (size_t)share;
        to_open_count--;
        if (options.pace) next_ns += 1000000000LL / options.pace * options.workers;
        conn->fd = connected(options.port, number + 1);
        if (conn->fd < 0) {
            if (!options.reconnect) fail("nobody listens there");
            queue_up(conn, AGAIN_NS);
            continue;
        }
        conn->state = OPENING;
        opening++;
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = conn};
        epoll_ctl(poller, EPOLL_CTL_ADD, conn->fd, &event);
        protocol->greet(conn);
    }
}

void work(int number, pid_t parent, const struct protocol *protocol) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) exit(1); /* it ended before it could be watched */
    me = &shared->workers[number];
    share = options.subscribers / options.workers + (number < options.subscribers % options.workers);
    struct conn *conns = calloc((size_t)share + 1, sizeof *conns);
    acking = calloc((size_t)share + 1, sizeof *acking);
    to_open = calloc((size_t)share + 1, sizeof *to_open);
    for (int i = 0; i < share; i++) {
        conns[i].number = (uint32_t)(i * options.workers + number);
        conns[i].latest = all_latest + conns[i].number * (uint32_t)options.per_client;
    }
    int poller = epoll_create1(0), away = 1;
    struct epoll_event events[256];
    for (;;) {
        if (atomic_load_explicit(&shared->away, memory_order_relaxed) != away) {
            away = !away;
            to_open_count = 0;
            for (int i = 0; i < share; i++) {
                if (!away) queue_up(&conns[i], 0);
                else if (conns[i].state != CLOSED) end(&conns[i]);
            }
        }
        open_some(poller, number, protocol);
        int patience_ms = ack_what_is_due();
        if (to_open_count) patience_ms = 1;
        else if (patience_ms > 20) patience_ms = 20; /* to see that it is time to leave */
        int count = epoll_wait(poller, events, 256, patience_ms);
        for (int i = 0; i < count; i++) {
            struct conn *conn = events[i].data.ptr;
            if (conn->state != CLOSED && read_from(conn, protocol) <= 0) lost(conn);
        }
    }
}
