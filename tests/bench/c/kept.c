/*
 * kept PORT COUNT SECONDS opens COUNT connections, each to a loopback address of
 * its own, and sends a request over each once in SECONDS, evenly spread: what a
 * plain loop in C pays for an attempt over a kept connection. It judges nothing.
 *
 * It prints the number of answers as JSON when it begins and for each line of
 * its standard input, and ends with that.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define INPUT UINT32_MAX

static const char request[] = "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: */*\r\n\r\n";

static long long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void watch(int set, int fd, uint32_t key, uint32_t events)
{
	struct epoll_event e = {.events = events, .data.u32 = key};
	if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &e) != 0)
		fail("epoll_ctl");
}

static int open_connection(int port, int i)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
	to.sin_addr.s_addr = htonl((127u << 24) + 1 + i);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) != 0)
		fail("connect");
	fcntl(fd, F_SETFL, O_NONBLOCK);
	return fd;
}

int main(int argc, char **argv)
{
	if (argc != 4) {
		fprintf(stderr, "usage: kept PORT COUNT SECONDS\n");
		return 2;
	}
	int port = atoi(argv[1]), count = atoi(argv[2]), set = epoll_create1(0);
	long long gap = atof(argv[3]) * 1e9 / count, answers = 0;
	struct rlimit files;
	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	int *fds = calloc(count, sizeof *fds);
	for (int i = 0; i < count; i++) { /* in an order of chance: attempts visit memory as they come */
		int at = rand() % (i + 1);
		fds[i] = fds[at];
		fds[at] = open_connection(port, i);
	}
	for (int i = 0; i < count; i++)
		watch(set, fds[i], i, EPOLLIN | EPOLLRDHUP | EPOLLET);
	watch(set, STDIN_FILENO, INPUT, EPOLLIN);
	printf("{\"Attempts\": 0}\n");
	fflush(stdout);
	long long due = now();
	for (int next = 0;;) {
		struct epoll_event events[128];
		char answer[4096];
		for (; due <= now(); due += gap, next = (next + 1) % count)
			if (send(fds[next], request, sizeof request - 1, MSG_NOSIGNAL) < 0)
				fail("send");
		long long left = due - now();
		struct timespec limit = {0, left > 0 ? left : 0};
		int n = epoll_pwait2(set, events, 128, &limit, NULL);
		for (int i = 0; i < n; i++) {
			if (events[i].data.u32 != INPUT) {
				answers += recv(fds[events[i].data.u32], answer, sizeof answer, 0) > 0;
				continue;
			}
			if (read(STDIN_FILENO, answer, sizeof answer) <= 0)
				return 0;
			printf("{\"Attempts\": %lld}\n", answers);
			fflush(stdout);
		}
	}
}
