/*
 * Network namespaces of instances and containers, by rtnetlink. The calls wait for the kernel's network lock, so the
 * launcher runs them in a child that shares its descriptor table: the descriptors made there are the launcher's own.
 *
 * With a range of ids each has a user namespace above it, for a container to join: only who is root there may mount
 * /sys of that network and bind its low ports. Function instances take the network alone.
 *
 * N1 A namespace is used once. Descriptors of its sockets may be anywhere by then, so its link is cut (moved into a
 *    group whose packets the rules drop) before anything else is done, and removed together with others: the kernel
 *    takes about as long for fifty links as for one.
 * N2 Traffic makes no neighbour entry: each namespace knows its gateway and no other, each link one address.
 */
#ifndef MINIT_NETNS_H
#define MINIT_NETNS_H

#include <stdint.h>

#include "conntrack.h"

enum { NETNS_STEP_BYTES = 48 };

struct netns_request {
  uint32_t first_id;         /* of the user namespace, 0 for none */
  uint32_t address, gateway; /* host byte order */
  uint32_t group;            /* of the host end; not 0, in which all other links of the machine are */
  const char *host_ifname;
};

/* Links, each name with a newline behind it, and the group that they are moved to. */
struct netns_group {
  uint32_t group;
  char *names;
};

/* Shared between the launcher and the child. */
struct netns_result {
  int error;   /* errno, 0 when done */
  int fd;      /* -1 unless a namespace is there */
  int user_fd; /* -1 unless a user namespace is */
  char step[NETNS_STEP_BYTES];
};

/* Makes a namespace with lo, eth0, a route to the gateway and one by way of it, and the route to it. All or nothing. */
void netns_add(const struct netns_request *request, struct netns_result *result);
/* Moves links into a group. One that is gone already is no error; one that cannot be moved does not hold up the others. */
void netns_cut(struct netns_group *cut, struct netns_result *result);
/* Moves links into a group, deletes the tracked connections of these addresses, and then all links of the group. */
void netns_remove(struct netns_group *removed, const struct address_set *addresses, struct netns_result *result);

#endif
