/*
 * Netlink messages: a header, a fixed part, attributes, nested ones too, and a request that waits for its
 * acknowledgement. All attributes of one message together are far below NETLINK_MESSAGE_BYTES.
 */
#ifndef MINIT_NETLINK_H
#define MINIT_NETLINK_H

#include <linux/rtnetlink.h>
#include <stddef.h>
#include <stdint.h>

enum { NETLINK_MESSAGE_BYTES = 1024 };

struct message {
  union {
    struct nlmsghdr head;
    uint8_t bytes[NETLINK_MESSAGE_BYTES];
  };
};

/* Returns the fixed part, which follows the header. */
void *message_begin(struct message *m, uint16_t type, uint16_t flags, size_t body_len);
struct rtattr *message_put(struct message *m, uint16_t type, const void *value, size_t len);
void message_put_text(struct message *m, uint16_t type, const char *text);
void message_put_u32(struct message *m, uint16_t type, uint32_t value);
struct rtattr *message_nest(struct message *m, uint16_t type);
void message_end_nest(struct message *m, struct rtattr *attribute);

int netlink_open(int protocol);
/* Sends the message and waits for the acknowledgement. Returns 0 or an errno. */
int netlink_ask(int fd, struct message *m);

#endif
