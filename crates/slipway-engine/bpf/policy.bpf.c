// SPDX-License-Identifier: Apache-2.0 OR MIT
// A lab's policy at the host's end of a node's interface. `src/network/policy.rs` loads it.
//
// A packet from one node to another passes where it may **open** something: a rule about sender, receiver and the port
// that is asked for decides. Where it may not, it passes as part of what the receiver opened:
//
// - a segment of TCP that is no first one (SYN without ACK), where the receiver might connect to the port that it is from;
// - a datagram of UDP, or an answer to a ping, where the receiver sent what it answers in the last two minutes;
// - an error of ICMP, where either may open anything to the other.
//
// Rules that name ports are about TCP and UDP. Where such a rule is about the two, no packet passes that does not show
// its port. Fragments, packets with extension headers of IPv6, other protocols and all that is not IP show none. ICMP
// has no ports; the other rules decide about it. ARP (RFC 826) and neighbour discovery (RFC 4861) pass.

#include "packet.h"

// Words of 64 rules, at most.
#define MOST_WORDS 64
// A flow may be answered until so long after its last packet: two minutes in nanoseconds, nearly.
#define PATIENCE (113ULL << 30)

// What else there is to do about a packet.
// Where it may pass, it may be answered.
#define MAY_BE_ANSWERED 1
// Where it may open nothing, it may be an answer.
#define MAY_ANSWER 2
// Where it may open nothing, it may be of a connection that the receiver opened.
#define MAY_GO_ON 4

// The node at the interface: its number, its Ethernet address, and its addresses, which `sent` compares first.
const volatile __u32 number;
const volatile union mac mac;
const volatile struct address ipv4;
const volatile struct address ipv6;
// A gateway sends packets of others.
const volatile bool is_gateway;
// Words of each set of rules.
const volatile __u32 words;

// A node: its number, then the rules about what it connects to, and the rules about who connects to it.
struct node {
	__u32 number;
	__u32 padding;
	__u64 rules[2];
};

// By an Ethernet address. Values are as long as `words` says, here and below.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, struct node);
} nodes SEC(".maps");

// One entry: the rules that deny or limit, then those about all ports.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64[2]);
} rules SEC(".maps");

// By port: the rules that name it. Port 0 stands for what has none.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} ports SEC(".maps");

// By an address of a node: the node's number.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct address);
	__type(value, __u64);
} addresses SEC(".maps");

// By an Ethernet address: the node's number, and in the upper half whether it forwards.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, __u64);
} senders SEC(".maps");

// What a node asked for: who asks and is asked, and both ports.
struct flow {
	__u32 asks, is_asked;
	__u16 from, to;
	__u32 protocol;
};

// By the number of the node that asks: when it last asked somebody, or was answered.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct {
		__uint(type, BPF_MAP_TYPE_LRU_HASH);
		__uint(max_entries, 1);
		__uint(key_size, sizeof(struct flow));
		__uint(value_size, sizeof(__u64));
	});
} flows SEC(".maps");

// The rules about what one node connects to at another, a word of them.
static __always_inline __u64 about(struct node *asks, struct node *is_asked, __u32 word)
{
	return asks->rules[word] & is_asked->rules[words + word];
}

#define each_word(word)                                        \
	_Pragma("clang loop unroll(disable)")                  \
	for (__u32 word = 0; word < MOST_WORDS && word < words; word++)

// Whether a rule about the two, either way, denies or limits.
static __always_inline bool holds_back(__u64 *rules, struct node *one, struct node *other)
{
	each_word(word)
		if ((about(one, other, word) | about(other, one, word)) & rules[word])
			return true;
	return false;
}

// Whether a rule about the two names ports.
static __always_inline bool names_ports(__u64 *rules, struct node *asks, struct node *is_asked)
{
	each_word(word)
		if (about(asks, is_asked, word) & ~rules[words + word])
			return true;
	return false;
}

// Whether the first rule that fits allows; without one, all is allowed.
static __always_inline bool may_open(__u64 *rules, struct node *asks, struct node *is_asked, __u32 port)
{
	__u64 *naming = bpf_map_lookup_elem(&ports, &port);

	if (!naming)
		return false;
	each_word(word) {
		__u64 fit = about(asks, is_asked, word) & (rules[words + word] | naming[word]);

		if (fit)
			return !(fit & -fit & rules[word]);
	}
	return true;
}

// Whether any packet may pass: a rule that allows is before the first rule about all ports that denies, or there is none
// of these.
static __always_inline bool may_open_any(__u64 *rules, struct node *asks, struct node *is_asked)
{
	each_word(word) {
		__u64 fit = about(asks, is_asked, word);
		__u64 whole = fit & rules[words + word];
		__u64 first = whole & -whole;

		// Up to the first rule about all ports; every rule where there is none.
		if (fit & ~rules[word] & (first | (first - 1)))
			return true;
		if (whole)
			return false;
	}
	return true;
}

// Notes when a flow was last seen that may be answered. Where there is no memory for the note, answers do not pass.
static __always_inline int remember(const struct flow *flow)
{
	__u64 now = bpf_ktime_get_ns();
	void *own = bpf_map_lookup_elem(&flows, &flow->asks);

	if (!own)
		return TC_ACT_SHOT;
	bpf_map_update_elem(own, flow, &now, BPF_ANY);
	return TC_ACT_UNSPEC;
}

// Lets pass what answers such a flow.
static __always_inline int answer(const struct flow *flow)
{
	__u64 now = bpf_ktime_get_ns();
	void *own = bpf_map_lookup_elem(&flows, &flow->asks);

	if (!own)
		return TC_ACT_SHOT;

	__u64 *last = bpf_map_lookup_elem(own, flow);

	if (!last || now - *last >= PATIENCE)
		return TC_ACT_SHOT;
	*last = now;
	return TC_ACT_UNSPEC;
}

// How a packet is judged.
enum judgement { OPENS, WHOLE, PLAIN, ERROR, DISCOVERY, BROKEN };

struct packet {
	__u32 protocol;
	__u32 source, destination;
	// The port that rules are asked about.
	__u32 asked;
	// MAY_… of above.
	__u32 kind;
};

// Where the transport's header begins, and of which protocol it is.
static __always_inline enum judgement transport(struct __sk_buff *skb, struct packet *packet, __u32 *at)
{
	if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		__u8 next;

		if (!read(skb, ETHERNET + 6, &next, 1))
			return BROKEN;
		packet->protocol = next;
		*at = ETHERNET + IPV6_HEADER;
		switch (next) {
		// Headers behind which there is another (IANA, "IPv6 Extension Header Types"), and ICMP, which is none in IPv6.
		case 0: case 43: case 44: case 51: case 60: case 135: case 139: case 140: case ICMP:
			return WHOLE;
		}
		return OPENS;
	}
	if (skb->protocol != bpf_htons(ETH_P_IP))
		return WHOLE;

	__u8 head[10];

	if (!read(skb, ETHERNET, head, sizeof(head)))
		return BROKEN;

	__u32 length = (head[0] & 0xf) * 4;

	// Options are passed over; what is shorter than a header (RFC 791) is none.
	if (length < 20)
		return BROKEN;
	// More fragments, or an offset.
	if (head[6] & 0x3f || head[7])
		return WHOLE;
	packet->protocol = head[9];
	*at = ETHERNET + length;
	return packet->protocol == ICMPV6 ? WHOLE : OPENS;
}

// A ping, by its number as if that were the port of who asks (RFC 792, RFC 4443).
static __always_inline enum judgement ping(struct packet *packet, __u32 number)
{
	packet->kind = MAY_BE_ANSWERED;
	packet->source = number;
	return OPENS;
}

static __always_inline enum judgement pong(struct packet *packet, __u32 number)
{
	packet->kind = MAY_ANSWER;
	packet->destination = number;
	return OPENS;
}

static __always_inline enum judgement look(struct __sk_buff *skb, struct packet *packet)
{
	__u32 at = 0;
	enum judgement judgement = transport(skb, packet, &at);
	__u8 head[14];

	if (judgement != OPENS)
		return judgement;
	switch (packet->protocol) {
	case TCP:
		if (!read(skb, at, head, 14))
			return BROKEN;
		// SYN, and not ACK (RFC 9293, 3.1).
		packet->kind = (head[13] & 0x12) == 0x02 ? 0 : MAY_GO_ON;
		break;
	case UDP:
		if (!read(skb, at, head, 4))
			return BROKEN;
		packet->kind = MAY_BE_ANSWERED | MAY_ANSWER;
		break;
	case ICMP:
	case ICMPV6:
		if (!read(skb, at, head, 6))
			return BROKEN;

		__u32 number = head[4] << 8 | head[5];

		if (packet->protocol == ICMP) {
			switch (head[0]) {
			case 3: case 11: case 12: return ERROR;
			case 8: return ping(packet, number);
			case 0: return pong(packet, number);
			}
			return PLAIN;
		}
		switch (head[0]) {
		case 1: case 2: case 3: case 4: return ERROR;
		case 133: case 134: case 135: case 136: case 137: return DISCOVERY;
		case 128: return ping(packet, number);
		case 129: return pong(packet, number);
		}
		return PLAIN;
	default:
		return WHOLE;
	}
	packet->source = head[0] << 8 | head[1];
	packet->destination = head[2] << 8 | head[3];
	packet->asked = packet->destination;
	return OPENS;
}

// What the node at the interface receives.
SEC("classifier")
int received(struct __sk_buff *skb)
{
	union mac from;
	__u64 own = mac.key;
	__u32 only = 0;
	struct packet packet = {};

	if (skb->protocol == bpf_htons(ETH_P_ARP))
		return TC_ACT_UNSPEC;
	// An address that none of the network's nodes has is nobody's here.
	if (!read_mac(skb, MAC_SOURCE, &from))
		return TC_ACT_SHOT;

	struct node *sender = bpf_map_lookup_elem(&nodes, &from.key);
	struct node *receiver = bpf_map_lookup_elem(&nodes, &own);
	__u64 *known = bpf_map_lookup_elem(&rules, &only);

	if (!sender || !receiver || !known)
		return TC_ACT_SHOT;
	if (!holds_back(known, sender, receiver))
		return TC_ACT_UNSPEC;

	switch (look(skb, &packet)) {
	case BROKEN:
		return TC_ACT_SHOT;
	case DISCOVERY:
		return TC_ACT_UNSPEC;
	case ERROR:
		return may_open_any(known, sender, receiver) || may_open_any(known, receiver, sender) ? TC_ACT_UNSPEC
												      : TC_ACT_SHOT;
	case WHOLE:
		// Nothing is known of its port.
		if (names_ports(known, sender, receiver))
			return TC_ACT_SHOT;
		packet.protocol = 0;
		break;
	case PLAIN:
	case OPENS:
		break;
	}

	if (may_open(known, sender, receiver, packet.asked)) {
		struct flow flow = {sender->number, receiver->number, packet.source, packet.destination, packet.protocol};

		return packet.kind & MAY_BE_ANSWERED ? remember(&flow) : TC_ACT_UNSPEC;
	}
	if (packet.kind & MAY_GO_ON)
		return may_open(known, receiver, sender, packet.source) ? TC_ACT_UNSPEC : TC_ACT_SHOT;
	if (packet.kind & MAY_ANSWER) {
		struct flow flow = {receiver->number, sender->number, packet.destination, packet.source, packet.protocol};

		return answer(&flow);
	}
	return TC_ACT_SHOT;
}

static __always_inline bool is_same(const struct address *one, const volatile struct address *other)
{
	return one->word[0] == other->word[0] && one->word[1] == other->word[1] && one->word[2] == other->word[2] &&
	       one->word[3] == other->word[3];
}

// What the node sends: nothing in another's name, neither of Ethernet nor of IP. Others would answer forged packets, with
// errors of ICMP or resets, to a node that the sender may not reach. An address of nobody's passes.
SEC("classifier")
int sent(struct __sk_buff *skb)
{
	union mac from;
	struct address source;

	if (!read_mac(skb, MAC_SOURCE, &from) || from.key != mac.key)
		return TC_ACT_SHOT;
	if (is_gateway)
		return TC_ACT_UNSPEC;
	if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		if (!read_ipv6(skb, ETHERNET + IPV6_SOURCE, &source))
			return TC_ACT_SHOT;
		if (is_same(&source, &ipv6))
			return TC_ACT_UNSPEC;
	} else if (skb->protocol == bpf_htons(ETH_P_IP)) {
		if (!read_ipv4(skb, ETHERNET + IPV4_SOURCE, &source))
			return TC_ACT_SHOT;
		if (is_same(&source, &ipv4))
			return TC_ACT_UNSPEC;
	} else {
		return TC_ACT_UNSPEC;
	}

	__u64 *owner = bpf_map_lookup_elem(&addresses, &source);

	return owner && *owner != number ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}

// The guard at the port of a node that does not forward, with or without a policy. It drops messages that only a router
// may send:
//
// - router advertisements and redirects (RFC 4861, RFC 792);
// - ICMP errors about packets that were sent to another node. An error quotes the packet that it is about. The receiver's
//   kernel does not check enough: it takes the MTU from an error that quotes an answer to a ping;
// - ICMP errors about packets that another node sent, or nobody. A packet in nobody's name would have its receiver answer
//   with its content to whomever the sender names as a neighbour;
// - frames with a VLAN tag of number 0 within another tag. The kernel strips both (__netif_receive_skb_core,
//   net/core/dev.c), but a program at a port sees only behind the first one.

// More extension headers than this in one packet are none of a decent sender's.
#define STEPS 6
#define FRAGMENT 44
#define REDIRECT 5
#define ADVERTISEMENT 134
#define REDIRECT_V6 137
// The bits of a VLAN tag that are its number (IEEE 802.1Q).
#define VLAN_NUMBER 0x0fff

// The addresses of the packet that an error quotes.
struct quoted {
	struct address source, destination;
};

// A packet that is no error of ICMP passes or not; of an error, the addresses that it quotes decide.
enum control { CONTROL_PASS, CONTROL_DROP, CONTROL_ERROR };

static __always_inline enum control control4(struct __sk_buff *skb, struct quoted *quoted)
{
	__u8 head[10], type;

	if (!read(skb, ETHERNET, head, sizeof(head)))
		return CONTROL_DROP;
	// Only the first fragment has the header of ICMP.
	if (head[9] != ICMP || head[6] & 0x1f || head[7])
		return CONTROL_PASS;

	__u32 length = (head[0] & 0xf) * 4;

	if (length < 20 || !read(skb, ETHERNET + length, &type, 1))
		return CONTROL_DROP;
	switch (type) {
	case REDIRECT:
		return CONTROL_DROP;
	// RFC 792. Linux still acts on source quench, 4, which is obsolete.
	case 3: case 4: case 11: case 12:
		length += ETHERNET + 8;
		return read_ipv4(skb, length + IPV4_SOURCE, &quoted->source) &&
				       read_ipv4(skb, length + IPV4_DESTINATION, &quoted->destination)
			       ? CONTROL_ERROR
			       : CONTROL_DROP;
	}
	return CONTROL_PASS;
}

// Headers that say how long they are, behind which there is another (RFC 8200, 4.1).
static __always_inline bool is_extension(__u8 header)
{
	return header == 0 || header == 43 || header == 60;
}

static __always_inline enum control control6(struct __sk_buff *skb, struct quoted *quoted)
{
	__u32 at = ETHERNET + IPV6_HEADER;
	__u8 next, head[4];

	if (!read(skb, ETHERNET + 6, &next, 1))
		return CONTROL_DROP;
	for (int step = 0; step < STEPS && is_extension(next); step++) {
		if (!read(skb, at, head, 2))
			return CONTROL_DROP;
		next = head[0];
		at += (head[1] + 1) * 8;
	}
	if (next == FRAGMENT) {
		if (!read(skb, at, head, 4))
			return CONTROL_DROP;
		// Only the first fragment has the header of ICMP.
		if (head[3] & 0xf8 || head[2])
			return CONTROL_PASS;
		next = head[0];
		at += 8;
		if (next == FRAGMENT)
			return CONTROL_DROP;
	}
	if (is_extension(next))
		return CONTROL_DROP;
	if (next != ICMPV6)
		return CONTROL_PASS;
	if (!read(skb, at, head, 1))
		return CONTROL_DROP;
	switch (head[0]) {
	case ADVERTISEMENT:
	case REDIRECT_V6:
		return CONTROL_DROP;
	// RFC 4443.
	case 1: case 2: case 3: case 4:
		at += 8;
		return read_ipv6(skb, at + IPV6_SOURCE, &quoted->source) &&
				       read_ipv6(skb, at + IPV6_DESTINATION, &quoted->destination)
			       ? CONTROL_ERROR
			       : CONTROL_DROP;
	}
	return CONTROL_PASS;
}

static __always_inline enum control control(struct __sk_buff *skb, struct quoted *quoted)
{
	__u8 *data = (void *)(long)skb->data;
	// One byte, read where it lies, tells whether this is ICMP. Where it cannot be read so, the headers are copied.
	bool is_there = data + 24 <= (__u8 *)(long)skb->data_end;
	__be16 tag;

	switch (skb->protocol) {
	case bpf_htons(ETH_P_IP):
		return is_there && data[ETHERNET + 9] != ICMP ? CONTROL_PASS : control4(skb, quoted);
	case bpf_htons(ETH_P_IPV6):
		if (is_there && (data[ETHERNET + 6] == TCP || data[ETHERNET + 6] == UDP))
			return CONTROL_PASS;
		return control6(skb, quoted);
	case bpf_htons(ETH_P_8021Q):
	case bpf_htons(ETH_P_8021AD):
		return read(skb, ETHERNET, &tag, 2) && tag & bpf_htons(VLAN_NUMBER) ? CONTROL_PASS : CONTROL_DROP;
	}
	return CONTROL_PASS;
}

// The number of the node with an Ethernet address of the frame. Nobody's is 0, which is the first node's too: `is_known` tells.
struct node_at {
	__u32 number;
	bool is_known, forwards;
};

static __always_inline struct node_at node_at(struct __sk_buff *skb, __u32 at)
{
	struct node_at node = {};
	union mac mac;
	__u64 *known = read_mac(skb, at, &mac) ? bpf_map_lookup_elem(&senders, &mac.key) : 0;

	if (known) {
		node.is_known = true;
		node.number = *known;
		node.forwards = *known >> 32;
	}
	return node;
}

SEC("classifier")
int guard(struct __sk_buff *skb)
{
	struct quoted quoted;

	switch (control(skb, &quoted)) {
	case CONTROL_PASS:
		return TC_ACT_UNSPEC;
	case CONTROL_DROP:
		return TC_ACT_SHOT;
	case CONTROL_ERROR:
		break;
	}

	struct node_at sender = node_at(skb, MAC_SOURCE), receiver = node_at(skb, MAC_DESTINATION);
	__u64 *asked = bpf_map_lookup_elem(&addresses, &quoted.destination);
	__u64 *asks = bpf_map_lookup_elem(&addresses, &quoted.source);

	if (!asked || !asks || !sender.is_known || !receiver.is_known || sender.number != *asked)
		return TC_ACT_SHOT;
	// Who forwards takes errors for others.
	return receiver.forwards || receiver.number == *asks ? TC_ACT_UNSPEC : TC_ACT_SHOT;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
