#define _GNU_SOURCE
#include "netns.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
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

#include "netlink.h"
#include "protocol.h"

enum { LOOPBACK_INDEX = 1, HARDWARE_BYTES = 6 };

static int index_of(int fd, const char *name) {
  struct ifreq request = {0};
  strcpy(request.ifr_name, name);
  return ioctl(fd, SIOCGIFINDEX, &request) == 0 ? request.ifr_ifindex : 0;
}

static int set_flags(int fd, int index, unsigned flags) {
  struct message m;
  struct ifinfomsg *link = message_begin(&m, RTM_NEWLINK, 0, sizeof *link);
  link->ifi_index = index;
  link->ifi_flags = link->ifi_change = flags;
  return netlink_ask(fd, &m);
}

/* Both ends' hardware addresses follow from the IP address. 02 marks them as locally given. */
static void hardware_of(uint32_t address, uint8_t end, uint8_t hardware[HARDWARE_BYTES]) {
  const uint8_t bytes[] = {2, end, (uint8_t)(address >> 24), (uint8_t)(address >> 16), (uint8_t)(address >> 8), (uint8_t)address};
  memcpy(hardware, bytes, HARDWARE_BYTES);
}

enum { INSIDE = 1, OUTSIDE = 2 };

/*
 * One message: the host end is made in the group of links in use, so that no packet ever comes from it without the rules
 * for that group; the peer is made directly inside the namespace. Both are down.
 */
static int make_veth(int fd, const struct netns_request *request, int netns_fd) {
  struct message m;
  uint8_t hardware[HARDWARE_BYTES];
  message_begin(&m, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, sizeof(struct ifinfomsg));
  message_put_text(&m, IFLA_IFNAME, request->host_ifname);
  message_put_u32(&m, IFLA_GROUP, request->group);
  hardware_of(request->address, OUTSIDE, hardware);
  message_put(&m, IFLA_ADDRESS, hardware, sizeof hardware);
  message_put_u32(&m, IFLA_NUM_TX_QUEUES, 1);
  message_put_u32(&m, IFLA_NUM_RX_QUEUES, 1);
  struct rtattr *info = message_nest(&m, IFLA_LINKINFO);
  message_put(&m, IFLA_INFO_KIND, "veth", 4);
  struct rtattr *data = message_nest(&m, IFLA_INFO_DATA);
  struct rtattr *peer = message_nest(&m, VETH_INFO_PEER);
  m.head.nlmsg_len += sizeof(struct ifinfomsg);
  message_put_text(&m, IFLA_IFNAME, "eth0");
  hardware_of(request->address, INSIDE, hardware);
  message_put(&m, IFLA_ADDRESS, hardware, sizeof hardware);
  message_put_u32(&m, IFLA_NUM_TX_QUEUES, 1);
  message_put_u32(&m, IFLA_NUM_RX_QUEUES, 1);
  message_put_u32(&m, IFLA_NET_NS_FD, (uint32_t)netns_fd);
  message_end_nest(&m, peer);
  message_end_nest(&m, data);
  message_end_nest(&m, info);
  return netlink_ask(fd, &m);
}

/*
 * The host end gets no link-local address: nothing speaks IPv6 to it, and each address that comes or goes makes browsers
 * on this machine give up the connections that they are making (ERR_NETWORK_CHANGED).
 */
static int no_link_local(int fd, const char *host_ifname) {
  struct message m;
  message_begin(&m, RTM_NEWLINK, 0, sizeof(struct ifinfomsg));
  message_put_text(&m, IFLA_IFNAME, host_ifname);
  struct rtattr *spec = message_nest(&m, IFLA_AF_SPEC);
  struct rtattr *inet6 = message_nest(&m, AF_INET6);
  uint8_t mode = IN6_ADDR_GEN_MODE_NONE;
  message_put(&m, IFLA_INET6_ADDR_GEN_MODE, &mode, sizeof mode);
  message_end_nest(&m, inet6);
  message_end_nest(&m, spec);
  int error = netlink_ask(fd, &m);
  return error == EAFNOSUPPORT ? 0 : error;
}

static int add_address(int fd, int index, uint32_t address) {
  struct message m;
  struct ifaddrmsg *body = message_begin(&m, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, sizeof *body);
  body->ifa_family = AF_INET;
  body->ifa_prefixlen = 32;
  body->ifa_index = (uint32_t)index;
  message_put_u32(&m, IFA_LOCAL, htonl(address));
  return netlink_ask(fd, &m);
}

/* The route to one address, 0 for all; `via` and `source` are 0 where there is none. */
static int add_route(int fd, int index, uint32_t address, uint32_t via, uint32_t source) {
  struct message m;
  struct rtmsg *body = message_begin(&m, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, sizeof *body);
  body->rtm_family = AF_INET;
  body->rtm_dst_len = address == 0 ? 0 : 32;
  body->rtm_table = RT_TABLE_MAIN;
  body->rtm_protocol = RTPROT_BOOT;
  body->rtm_scope = via == 0 ? RT_SCOPE_LINK : RT_SCOPE_UNIVERSE;
  body->rtm_type = RTN_UNICAST;
  if (address != 0) message_put_u32(&m, RTA_DST, htonl(address));
  if (via != 0) message_put_u32(&m, RTA_GATEWAY, htonl(via));
  if (source != 0) message_put_u32(&m, RTA_PREFSRC, htonl(source));
  message_put_u32(&m, RTA_OIF, (uint32_t)index);
  return netlink_ask(fd, &m);
}

/* The kernel neither asks for a permanent neighbour nor counts it: its table is one for the whole machine. */
static int add_neighbour(int fd, int index, uint32_t address, uint32_t link_address, uint8_t end) {
  struct message m;
  uint8_t hardware[HARDWARE_BYTES];
  hardware_of(link_address, end, hardware);
  struct ndmsg *body = message_begin(&m, RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, sizeof *body);
  body->ndm_family = AF_INET;
  body->ndm_ifindex = index;
  body->ndm_state = NUD_PERMANENT;
  message_put_u32(&m, NDA_DST, htonl(address));
  message_put(&m, NDA_LLADDR, hardware, sizeof hardware);
  return netlink_ask(fd, &m);
}

static bool failed(struct netns_result *result, const char *step, int error) {
  result->error = error;
  if (error != 0) snprintf(result->step, sizeof result->step, "%s", step);
  return error != 0;
}

/* /proc/sys/net is that of the writer's namespace. A kernel without IPv6 has no files for it, and nothing to set. */
static int set_sysctl(const char *path, const char *value) {
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return errno == ENOENT ? 0 : errno;
  size_t len = strlen(value);
  int error = write(fd, value, len) == (ssize_t)len ? 0 : errno;
  close(fd);
  return error;
}

/* IPv6 on lo alone: programs find ::1, and eth0, which is made later, has none. Sockets for echo requests are anybody's. */
static void set_sysctls(struct netns_result *result) {
  static const char all[] = "/proc/sys/net/ipv6/conf/all/disable_ipv6", lo[] = "/proc/sys/net/ipv6/conf/lo/disable_ipv6";
  if (failed(result, "disable ipv6", set_sysctl(all, "1"))) return;
  if (failed(result, "ipv6 on lo", set_sysctl(lo, "0"))) return;
  failed(result, "ping groups", set_sysctl("/proc/sys/net/ipv4/ping_group_range", "0 2147483647"));
}

static int delete_link(int fd, const char *host_ifname) {
  struct message m;
  message_begin(&m, RTM_DELLINK, 0, sizeof(struct ifinfomsg));
  message_put_text(&m, IFLA_IFNAME, host_ifname);
  int error = netlink_ask(fd, &m);
  return error == ENODEV ? 0 : error;
}

/* A link that is gone is no error. */
static int move_to_group(int fd, const char *host_ifname, uint32_t group) {
  struct message m;
  message_begin(&m, RTM_NEWLINK, 0, sizeof(struct ifinfomsg));
  message_put_text(&m, IFLA_IFNAME, host_ifname);
  message_put_u32(&m, IFLA_GROUP, group);
  int error = netlink_ask(fd, &m);
  return error == ENODEV ? 0 : error;
}

static int delete_group(int fd, uint32_t group) {
  struct message m;
  message_begin(&m, RTM_DELLINK, 0, sizeof(struct ifinfomsg));
  message_put_u32(&m, IFLA_GROUP, group);
  int error = netlink_ask(fd, &m);
  return error == ENODEV ? 0 : error;
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

static void add_inside(const struct netns_request *request, struct work *w, struct netns_result *result) {
  uint32_t address = request->address, gateway = request->gateway;
  int eth0 = index_of(w->inside, "eth0");
  if (failed(result, "eth0", eth0 == 0 ? errno : 0)) return;
  if (failed(result, "address", add_address(w->inside, eth0, address))) return;
  if (failed(result, "eth0 up", set_flags(w->inside, eth0, IFF_UP | IFF_NOARP))) return;
  if (failed(result, "neighbour", add_neighbour(w->inside, eth0, gateway, address, OUTSIDE))) return;
  if (failed(result, "gateway", add_route(w->inside, eth0, gateway, 0, 0))) return;
  failed(result, "route", add_route(w->inside, eth0, 0, gateway, 0));
}

static void add_outside(const struct netns_request *request, struct work *w, struct netns_result *result) {
  uint32_t address = request->address;
  int link = index_of(w->host, request->host_ifname);
  if (failed(result, "link", link == 0 ? errno : 0)) return;
  if (failed(result, "link-local", no_link_local(w->host, request->host_ifname))) return;
  if (failed(result, "link up", set_flags(w->host, link, IFF_UP | IFF_NOARP))) return;
  if (failed(result, "link neighbour", add_neighbour(w->host, link, address, address, INSIDE))) return;
  failed(result, "link route", add_route(w->host, link, address, 0, request->gateway));
}

static void add_steps(const struct netns_request *request, struct work *w, struct netns_result *result) {
  bool valid = is_name(request->host_ifname) && request->group != 0;
  if (failed(result, "arguments", valid ? 0 : EINVAL)) return;
  w->host = netlink_open(NETLINK_ROUTE);
  if (failed(result, "rtnetlink socket", w->host < 0 ? errno : 0)) return;
  if (request->first_id == 0 && failed(result, "namespace", make_plain(w))) return;
  if (request->first_id != 0 && failed(result, "user namespace", make_owned(w, request->first_id))) return;
  w->inside = netlink_open(NETLINK_ROUTE);
  if (failed(result, "rtnetlink socket inside", w->inside < 0 ? errno : 0)) return;
  set_sysctls(result);
  if (result->error != 0) return;
  if (failed(result, "loopback up", set_flags(w->inside, LOOPBACK_INDEX, IFF_UP))) return;
  if (failed(result, "veth", make_veth(w->host, request, w->netns))) return;
  w->linked = true;
  add_inside(request, w, result);
  if (result->error == 0) add_outside(request, w, result);
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

void netns_cut(struct netns_group *cut, struct netns_result *result) {
  *result = (struct netns_result){.fd = -1, .user_fd = -1};
  int fd = netlink_open(NETLINK_ROUTE);
  if (failed(result, "rtnetlink socket", fd < 0 ? errno : 0)) return;
  char *rest;
  for (char *name = strtok_r(cut->names, "\n", &rest); name != NULL; name = strtok_r(NULL, "\n", &rest)) {
    int error = is_name(name) ? move_to_group(fd, name, cut->group) : EINVAL;
    if (error != 0) failed(result, "cut link", error);
  }
  close(fd);
}

void netns_remove(struct netns_group *removed, const struct address_set *addresses, struct netns_result *result) {
  /* While no packet passes: one that did would be tracked again, and be sent to where the link was. */
  netns_cut(removed, result);
  if (result->error == 0) failed(result, "tracked connections", conntrack_flush(addresses));
  if (result->error != 0) return;
  int fd = netlink_open(NETLINK_ROUTE);
  if (failed(result, "rtnetlink socket", fd < 0 ? errno : 0)) return;
  failed(result, "delete links", delete_group(fd, removed->group));
  close(fd);
}
