#define _GNU_SOURCE
#include "netns.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_bridge.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <linux/veth.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "protocol.h"

enum { MESSAGE_BYTES = 512, LOOPBACK_INDEX = 1 };

struct message {
  union {
    struct nlmsghdr head;
    uint8_t bytes[MESSAGE_BYTES];
  };
};

/* The fixed part of a message goes right behind its header. */
static void *begin(struct message *m, uint16_t type, uint16_t flags, size_t body_len) {
  *m = (struct message){0};
  m->head.nlmsg_type = type;
  m->head.nlmsg_flags = (uint16_t)(NLM_F_REQUEST | NLM_F_ACK | flags);
  m->head.nlmsg_len = NLMSG_LENGTH((uint32_t)body_len);
  return NLMSG_DATA(&m->head);
}

/* All attributes together are far below MESSAGE_BYTES: names have at most 15 bytes, all else is fixed. */
static void *put(struct message *m, uint16_t type, const void *value, size_t len) {
  struct rtattr *attribute = (struct rtattr *)(m->bytes + NLMSG_ALIGN(m->head.nlmsg_len));
  attribute->rta_type = type;
  attribute->rta_len = (uint16_t)RTA_LENGTH(len);
  if (len > 0) memcpy(RTA_DATA(attribute), value, len);
  m->head.nlmsg_len = NLMSG_ALIGN(m->head.nlmsg_len) + RTA_ALIGN(attribute->rta_len);
  return attribute;
}

static void put_text(struct message *m, uint16_t type, const char *text) { put(m, type, text, strlen(text) + 1); }
static void put_u32(struct message *m, uint16_t type, uint32_t value) { put(m, type, &value, sizeof value); }
static struct rtattr *nest(struct message *m, uint16_t type) { return put(m, type, NULL, 0); }

static void end_nest(struct message *m, struct rtattr *attribute) {
  attribute->rta_len = (uint16_t)(m->bytes + m->head.nlmsg_len - (uint8_t *)attribute);
}

/* Sends and waits for the acknowledgement. Returns 0 or an errno. */
static int ask(int fd, struct message *m) {
  if (send(fd, m->bytes, m->head.nlmsg_len, 0) < 0) return errno;
  struct message answer;
  ssize_t n;
  do n = recv(fd, answer.bytes, sizeof answer.bytes, 0);
  while (n < 0 && errno == EINTR);
  if (n < 0) return errno;
  if ((size_t)n < NLMSG_LENGTH(sizeof(struct nlmsgerr)) || answer.head.nlmsg_type != NLMSG_ERROR) return EPROTO;
  return -((struct nlmsgerr *)NLMSG_DATA(&answer.head))->error;
}

static int open_rtnetlink(void) { return socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE); }

static int index_of(int fd, const char *name) {
  struct ifreq request = {0};
  strcpy(request.ifr_name, name);
  return ioctl(fd, SIOCGIFINDEX, &request) == 0 ? request.ifr_ifindex : 0;
}

static int link_up(int fd, int index) {
  struct message m;
  struct ifinfomsg *link = begin(&m, RTM_NEWLINK, 0, sizeof *link);
  link->ifi_index = index;
  link->ifi_flags = link->ifi_change = IFF_UP;
  return ask(fd, &m);
}

/*
 * One message: the host end is made as a port of the bridge, the peer directly inside the namespace. Both are down. The
 * peer's hardware address follows from its IP address: whoever on this machine knew an earlier link of that IP address
 * would send to nobody for up to half a minute, until the kernel asks again. 02 marks it as locally given.
 */
static int make_veth(int fd, const struct netns_request *request, int bridge_index, int netns_fd) {
  struct message m;
  begin(&m, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, sizeof(struct ifinfomsg));
  put_text(&m, IFLA_IFNAME, request->host_ifname);
  put_u32(&m, IFLA_MASTER, (uint32_t)bridge_index);
  put_u32(&m, IFLA_NUM_TX_QUEUES, 1);
  put_u32(&m, IFLA_NUM_RX_QUEUES, 1);
  struct rtattr *info = nest(&m, IFLA_LINKINFO);
  put(&m, IFLA_INFO_KIND, "veth", 4);
  struct rtattr *data = nest(&m, IFLA_INFO_DATA);
  struct rtattr *peer = nest(&m, VETH_INFO_PEER);
  m.head.nlmsg_len += sizeof(struct ifinfomsg);
  put_text(&m, IFLA_IFNAME, "eth0");
  uint32_t address = request->address;
  uint8_t hardware[6] = {2, 1, (uint8_t)(address >> 24), (uint8_t)(address >> 16), (uint8_t)(address >> 8), (uint8_t)address};
  put(&m, IFLA_ADDRESS, hardware, sizeof hardware);
  put_u32(&m, IFLA_NUM_TX_QUEUES, 1);
  put_u32(&m, IFLA_NUM_RX_QUEUES, 1);
  put_u32(&m, IFLA_NET_NS_FD, (uint32_t)netns_fd);
  end_nest(&m, peer);
  end_nest(&m, data);
  end_nest(&m, info);
  return ask(fd, &m);
}

/* Isolated ports do not reach each other. Set in the message that brings the port up, so it never is up without. */
static int isolate_and_up(int fd, const char *host_ifname) {
  struct message m;
  struct ifinfomsg *link = begin(&m, RTM_NEWLINK, 0, sizeof *link);
  link->ifi_flags = link->ifi_change = IFF_UP;
  put_text(&m, IFLA_IFNAME, host_ifname);
  struct rtattr *info = nest(&m, IFLA_LINKINFO);
  put(&m, IFLA_INFO_SLAVE_KIND, "bridge", 6);
  struct rtattr *data = nest(&m, IFLA_INFO_SLAVE_DATA);
  uint8_t on = 1;
  put(&m, IFLA_BRPORT_ISOLATED, &on, sizeof on);
  end_nest(&m, data);
  end_nest(&m, info);
  return ask(fd, &m);
}

/*
 * The host end gets no link-local address: nothing speaks IPv6 to it, and each address that comes or goes makes browsers
 * on this machine give up the connections that they are making (ERR_NETWORK_CHANGED).
 */
static int no_link_local(int fd, const char *host_ifname) {
  struct message m;
  begin(&m, RTM_NEWLINK, 0, sizeof(struct ifinfomsg));
  put_text(&m, IFLA_IFNAME, host_ifname);
  struct rtattr *spec = nest(&m, IFLA_AF_SPEC);
  struct rtattr *inet6 = nest(&m, AF_INET6);
  uint8_t mode = IN6_ADDR_GEN_MODE_NONE;
  put(&m, IFLA_INET6_ADDR_GEN_MODE, &mode, sizeof mode);
  end_nest(&m, inet6);
  end_nest(&m, spec);
  int error = ask(fd, &m);
  return error == EAFNOSUPPORT ? 0 : error;
}

static int add_address(int fd, int index, uint32_t address, uint8_t prefix_len) {
  struct message m;
  struct ifaddrmsg *body = begin(&m, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, sizeof *body);
  body->ifa_family = AF_INET;
  body->ifa_prefixlen = prefix_len;
  body->ifa_index = (uint32_t)index;
  put_u32(&m, IFA_LOCAL, htonl(address));
  put_u32(&m, IFA_ADDRESS, htonl(address));
  if (prefix_len < 31) put_u32(&m, IFA_BROADCAST, htonl(address | (prefix_len == 0 ? ~0U : ~0U >> prefix_len)));
  return ask(fd, &m);
}

static int add_default_route(int fd, int index, uint32_t gateway) {
  struct message m;
  struct rtmsg *body = begin(&m, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, sizeof *body);
  body->rtm_family = AF_INET;
  body->rtm_table = RT_TABLE_MAIN;
  body->rtm_protocol = RTPROT_BOOT;
  body->rtm_scope = RT_SCOPE_UNIVERSE;
  body->rtm_type = RTN_UNICAST;
  put_u32(&m, RTA_GATEWAY, htonl(gateway));
  put_u32(&m, RTA_OIF, (uint32_t)index);
  return ask(fd, &m);
}

/* /proc/sys/net is that of the reader's namespace. A kernel without IPv6 has no such file, and nothing to disable. */
static int disable_ipv6(const char *which) {
  char path[64];
  snprintf(path, sizeof path, "/proc/sys/net/ipv6/conf/%s/disable_ipv6", which);
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return errno == ENOENT ? 0 : errno;
  int error = write(fd, "1", 1) == 1 ? 0 : errno;
  close(fd);
  return error;
}

static int delete_link(int fd, const char *host_ifname) {
  struct message m;
  begin(&m, RTM_DELLINK, 0, sizeof(struct ifinfomsg));
  put_text(&m, IFLA_IFNAME, host_ifname);
  int error = ask(fd, &m);
  return error == ENODEV ? 0 : error;
}

/*
 * Deletes what has the name when it is a port of the same bridge: the rest of a request whose answer nobody took.
 * Anything else of that name stays. Returns 0 when the name is free.
 */
static int delete_leftover(int fd, const struct netns_request *request) {
  struct ifreq port = {.ifr_ifindex = index_of(fd, request->host_ifname)};
  if (port.ifr_ifindex == 0) return 0;
  strcpy(port.ifr_name, request->bridge);
  if (ioctl(fd, SIOCBRDELIF, &port) != 0) return EEXIST;
  return delete_link(fd, request->host_ifname);
}

static bool failed(struct netns_result *result, const char *step, int error) {
  result->error = error;
  if (error != 0) snprintf(result->step, sizeof result->step, "%s", step);
  return error != 0;
}

static bool is_name(const char *name) { return *name != 0 && strlen(name) < IFNAMSIZ; }

struct work {
  int host, inside, netns, user;
  bool linked;
};

/* User namespaces */

static int open_of(pid_t pid, const char *name, int flags) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
  return open(path, flags | O_CLOEXEC);
}

static bool write_map(pid_t pid, const char *name, uint32_t first_id) {
  char text[64];
  int len = snprintf(text, sizeof text, "0 %u %u\n", first_id, USER_IDS);
  int fd = open_of(pid, name, O_WRONLY);
  bool written = fd >= 0 && write(fd, text, (size_t)len) == len;
  int error = errno;
  if (fd >= 0) close(fd);
  errno = error;
  return written;
}

/*
 * A process in a new user namespace and a network namespace of that, for the time that these need one to be named by. It
 * ends with this process, which nobody waits for it to do: the launcher reaps it.
 */
static pid_t start_holder(uint32_t owner) {
  pid_t parent = getpid(), pid = -1;
  /*
   * Whoever has the uid that made a user namespace is all-powerful in it. Root inside of a container that has none is the
   * machine's uid 0, so the maker is one that nobody outside is: the first of the range.
   */
  if (seteuid(owner) != 0) return -1;
  pid = (pid_t)syscall(SYS_clone, CLONE_NEWUSER | CLONE_NEWNET | CLONE_FILES, 0, 0, 0, 0);
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (getppid() == parent) pause();
    _exit(0);
  }
  int error = errno;
  if (seteuid(0) != 0) _exit(1);
  errno = error;
  return pid;
}

static int make_owned(struct work *w, uint32_t first_id) {
  pid_t pid = start_holder(first_id);
  if (pid < 0) return errno;
  bool made = write_map(pid, "uid_map", first_id) && write_map(pid, "gid_map", first_id) &&
              (w->user = open_of(pid, "ns/user", O_RDONLY)) >= 0 && (w->netns = open_of(pid, "ns/net", O_RDONLY)) >= 0 &&
              setns(w->netns, CLONE_NEWNET) == 0;
  return made ? 0 : errno;
}

static int make_plain(struct work *w) {
  if (unshare(CLONE_NEWNET) != 0) return errno;
  w->netns = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
  return w->netns < 0 ? errno : 0;
}

static void add_steps(const struct netns_request *request, struct work *w, struct netns_result *result) {
  bool valid = is_name(request->host_ifname) && is_name(request->bridge) && request->prefix_len <= 32;
  if (failed(result, "arguments", valid ? 0 : EINVAL)) return;
  w->host = open_rtnetlink();
  if (failed(result, "rtnetlink socket", w->host < 0 ? errno : 0)) return;
  int bridge_index = index_of(w->host, request->bridge);
  if (failed(result, "bridge", bridge_index == 0 ? errno : 0)) return;
  if (request->first_id == 0 && failed(result, "namespace", make_plain(w))) return;
  if (request->first_id != 0 && failed(result, "user namespace", make_owned(w, request->first_id))) return;
  w->inside = open_rtnetlink();
  if (failed(result, "rtnetlink socket inside", w->inside < 0 ? errno : 0)) return;
  if (failed(result, "disable ipv6", disable_ipv6("default"))) return;
  if (failed(result, "disable ipv6", disable_ipv6("all"))) return;
  if (failed(result, "loopback up", link_up(w->inside, LOOPBACK_INDEX))) return;
  int error = make_veth(w->host, request, bridge_index, w->netns);
  if (error == EEXIST && (error = delete_leftover(w->host, request)) == 0) {
    error = make_veth(w->host, request, bridge_index, w->netns);
  }
  if (failed(result, "veth", error)) return;
  w->linked = true;
  int eth0 = index_of(w->inside, "eth0");
  if (failed(result, "eth0", eth0 == 0 ? errno : 0)) return;
  if (failed(result, "address", add_address(w->inside, eth0, request->address, request->prefix_len))) return;
  if (failed(result, "eth0 up", link_up(w->inside, eth0))) return;
  if (failed(result, "link-local", no_link_local(w->host, request->host_ifname))) return;
  if (failed(result, "bridge port up", isolate_and_up(w->host, request->host_ifname))) return;
  failed(result, "route", add_default_route(w->inside, eth0, request->gateway));
}

void netns_add(const struct netns_request *request, struct netns_result *result) {
  struct work w = {-1, -1, -1, -1, false};
  *result = (struct netns_result){.fd = -1, .user_fd = -1};
  add_steps(request, &w, result);
  if (result->error != 0 && w.linked) delete_link(w.host, request->host_ifname);
  if (w.host >= 0) close(w.host);
  if (w.inside >= 0) close(w.inside);
  if (result->error == 0) {
    result->fd = w.netns;
    result->user_fd = w.user;
    return;
  }
  if (w.netns >= 0) close(w.netns);
  if (w.user >= 0) close(w.user);
}

void netns_del(const char *host_ifname, struct netns_result *result) {
  *result = (struct netns_result){.fd = -1, .user_fd = -1};
  if (failed(result, "arguments", is_name(host_ifname) ? 0 : EINVAL)) return;
  int fd = open_rtnetlink();
  if (failed(result, "rtnetlink socket", fd < 0 ? errno : 0)) return;
  failed(result, "delete link", delete_link(fd, host_ifname));
  close(fd);
}
