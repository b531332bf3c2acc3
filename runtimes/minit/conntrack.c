#define _GNU_SOURCE
#include "conntrack.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_conntrack.h>
#include <linux/netlink.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "netlink.h"

enum { DUMP_BYTES = 64 * 1024, TYPE_MASK = NLA_TYPE_MASK };

static uint16_t type_of(uint8_t message) { return (uint16_t)(NFNL_SUBSYS_CTNETLINK << 8 | message); }

static const struct rtattr *find(const void *from, size_t left, uint16_t type) {
  const struct rtattr *attribute = from;
  int rest = (int)left;
  for (; RTA_OK(attribute, rest); attribute = RTA_NEXT(attribute, rest)) {
    if ((attribute->rta_type & TYPE_MASK) == type) return attribute;
  }
  return NULL;
}

static const struct rtattr *find_in(const struct rtattr *parent, uint16_t type) {
  return parent == NULL ? NULL : find(RTA_DATA(parent), RTA_PAYLOAD(parent), type);
}

static bool is_member(const struct address_set *set, const struct rtattr *attribute) {
  if (attribute == NULL || RTA_PAYLOAD(attribute) != sizeof(uint32_t)) return false;
  uint32_t address;
  memcpy(&address, RTA_DATA(attribute), sizeof address);
  uint32_t bit = ntohl(address) - set->first;
  return bit / 8 < set->bytes && (set->bits[bit / 8] >> bit % 8 & 1) != 0;
}

static bool is_touched(const struct address_set *set, const struct rtattr *tuple) {
  const struct rtattr *ip = find_in(tuple, CTA_TUPLE_IP);
  return is_member(set, find_in(ip, CTA_IP_V4_SRC)) || is_member(set, find_in(ip, CTA_IP_V4_DST));
}

/* By tuple and id: an entry that took the place of this one meanwhile stays. */
static int delete_entry(int fd, const struct nfgenmsg *entry, size_t left, const struct rtattr *original) {
  const struct rtattr *id = find(entry + 1, left, CTA_ID), *zone = find(entry + 1, left, CTA_ZONE);
  if (id == NULL || RTA_PAYLOAD(original) > NETLINK_MESSAGE_BYTES / 2) return EPROTO;
  struct message m;
  struct nfgenmsg *body = message_begin(&m, type_of(IPCTNL_MSG_CT_DELETE), 0, sizeof *body);
  body->nfgen_family = AF_INET;
  body->version = NFNETLINK_V0;
  message_put(&m, original->rta_type, RTA_DATA(original), RTA_PAYLOAD(original));
  message_put(&m, CTA_ID, RTA_DATA(id), RTA_PAYLOAD(id));
  if (zone != NULL) message_put(&m, CTA_ZONE, RTA_DATA(zone), RTA_PAYLOAD(zone));
  int error = netlink_ask(fd, &m);
  return error == ENOENT ? 0 : error;
}

static int look_at(int fd, const struct nlmsghdr *head, const struct address_set *set) {
  if (head->nlmsg_len < NLMSG_LENGTH(sizeof(struct nfgenmsg))) return EPROTO;
  const struct nfgenmsg *entry = NLMSG_DATA(head);
  size_t left = head->nlmsg_len - NLMSG_SPACE(sizeof *entry);
  const struct rtattr *original = find(entry + 1, left, CTA_TUPLE_ORIG);
  if (original == NULL) return 0;
  bool touched = is_touched(set, original) || is_touched(set, find(entry + 1, left, CTA_TUPLE_REPLY));
  return touched ? delete_entry(fd, entry, left, original) : 0;
}

static int dump(int from, int to, const struct address_set *set) {
  static union {
    struct nlmsghdr head;
    uint8_t bytes[DUMP_BYTES];
  } room;
  struct message m;
  struct nfgenmsg *body = message_begin(&m, type_of(IPCTNL_MSG_CT_GET), NLM_F_DUMP, sizeof *body);
  body->nfgen_family = AF_INET;
  body->version = NFNETLINK_V0;
  if (send(from, m.bytes, m.head.nlmsg_len, 0) < 0) return errno;
  int failure = 0;
  for (;;) {
    ssize_t n = recv(from, &room, sizeof room, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 ? errno : EPROTO;
    unsigned left = (unsigned)n;
    for (const struct nlmsghdr *head = &room.head; NLMSG_OK(head, left); head = NLMSG_NEXT(head, left)) {
      if (head->nlmsg_type == NLMSG_DONE) return failure;
      if (head->nlmsg_type == NLMSG_ERROR) return -((const struct nlmsgerr *)NLMSG_DATA(head))->error;
      int error = look_at(to, head, set);
      if (error != 0) failure = error;
    }
  }
}

int conntrack_flush(const struct address_set *set) {
  int from = netlink_open(NETLINK_NETFILTER), to = netlink_open(NETLINK_NETFILTER);
  int error = from < 0 || to < 0 ? errno : dump(from, to, set);
  if (from >= 0) close(from);
  if (to >= 0) close(to);
  return error;
}
