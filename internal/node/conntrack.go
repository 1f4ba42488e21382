package node

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Attributes and bits of connection tracking that the library does not name
// (include/uapi/linux/netfilter/nfnetlink_conntrack.h, nf_conntrack_common.h, nf_conntrack_tcp.h).
const (
	ctaNATSrc = 6
	ctaNATDst = 13

	ctaNATMinIP   = 1
	ctaNATMaxIP   = 2
	ctaNATProto   = 3
	ctaNATMinPort = 1
	ctaNATMaxPort = 2

	ctSeenReply = 1 << 1
	ctAssured   = 1 << 2
	ctConfirmed = 1 << 3
	ctSourceNAT = 1 << 4

	tcpKept    = 1<<0 | 1<<1 | 1<<2 // window scale, selective acknowledgement, who closed
	tcpLiberal = 1 << 3
)

// tuple is one direction of a connection.
type tuple struct {
	from, to netip.AddrPort
	protocol uint8
}

func (t tuple) reversed() tuple { return tuple{t.to, t.from, t.protocol} }

// connection is an entry of connection tracking, of TCP or UDP over IPv4.
type connection struct {
	original, reply tuple
	zone            uint16
	status          uint32
	timeout, mark   []byte
	tcp             *tcpState
}

// tcpState is what an entry has of TCP's state; index 0 is the original direction.
type tcpState struct {
	state byte
	scale [2]byte
	flags [2]byte
}

// masqueraded says whether the source is translated; the kernel does not tell by which kind of rule.
func (c *connection) masqueraded() bool { return c.status&ctSourceNAT != 0 }

// over says whether no awaited packet is left.
func (c *connection) over() bool {
	return c.tcp != nil && (c.tcp.state == nl.TCP_CONNTRACK_TIME_WAIT || c.tcp.state == nl.TCP_CONNTRACK_CLOSE)
}

// connections lists the entries of the host's namespace.
func connections() ([]connection, error) {
	all, err := listed(func() ([]connection, error) {
		request := conntrackRequest(nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP)
		messages, err := request.Execute(unix.NETLINK_NETFILTER, 0)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return nil, err
		}
		var all []connection
		for _, message := range messages {
			if c, ok := parseConnection(message); ok {
				all = append(all, c)
			}
		}
		return all, err
	})
	if err != nil {
		return nil, fmt.Errorf("list the tracked connections: %w", err)
	}
	return all, nil
}

func conntrackRequest(operation, flags int) *nl.NetlinkRequest {
	request := nl.NewNetlinkRequest(netlink.ConntrackTable<<8|operation, flags)
	request.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_INET, Version: nl.NFNETLINK_V0})
	return request
}

// attributes are the parts of a message by their kind; none where one is cut short. The library's own reader panics
// where the padding of the last one is missing.
func attributes(data []byte) map[uint16][]byte {
	all := map[uint16][]byte{}
	for len(data) >= unix.SizeofRtAttr {
		size := int(binary.NativeEndian.Uint16(data))
		if size < unix.SizeofRtAttr || size > len(data) {
			return nil
		}
		kind := binary.NativeEndian.Uint16(data[2:])
		all[kind&nl.NLA_TYPE_MASK] = data[unix.SizeofRtAttr:size]
		data = data[min(len(data), (size+unix.RTA_ALIGNTO-1)&^(unix.RTA_ALIGNTO-1)):]
	}
	return all
}

// parseConnection reads an entry; false for one that is none of TCP or UDP over IPv4.
func parseConnection(message []byte) (c connection, ok bool) {
	if len(message) < nl.SizeofNfgenmsg {
		return c, false
	}
	all := attributes(message[nl.SizeofNfgenmsg:])
	var fine [2]bool
	c.original, fine[0] = parseTuple(all[nl.CTA_TUPLE_ORIG])
	c.reply, fine[1] = parseTuple(all[nl.CTA_TUPLE_REPLY])
	status := all[nl.CTA_STATUS]
	c.timeout, c.mark = all[nl.CTA_TIMEOUT], all[nl.CTA_MARK]
	if !fine[0] || !fine[1] || len(status) != 4 || len(c.timeout) != 4 {
		return c, false
	}
	c.status = binary.BigEndian.Uint32(status)
	if zone := all[nl.CTA_ZONE]; len(zone) == 2 {
		c.zone = binary.BigEndian.Uint16(zone)
	}
	if c.original.protocol == unix.IPPROTO_TCP {
		c.tcp = parseTCP(attributes(attributes(all[nl.CTA_PROTOINFO])[nl.CTA_PROTOINFO_TCP]))
	}
	return c, c.tcp != nil || c.original.protocol == unix.IPPROTO_UDP
}

func parseTCP(info map[uint16][]byte) *tcpState {
	state := info[nl.CTA_PROTOINFO_TCP_STATE]
	if len(state) != 1 {
		return nil
	}
	s := &tcpState{state: state[0]}
	for i, kind := range []uint16{nl.CTA_PROTOINFO_TCP_WSCALE_ORIGINAL, nl.CTA_PROTOINFO_TCP_WSCALE_REPLY} {
		if scale := info[kind]; len(scale) == 1 {
			s.scale[i] = scale[0]
		}
	}
	for i, kind := range []uint16{nl.CTA_PROTOINFO_TCP_FLAGS_ORIGINAL, nl.CTA_PROTOINFO_TCP_FLAGS_REPLY} {
		if flags := info[kind]; len(flags) == 2 {
			s.flags[i] = flags[0]
		}
	}
	return s
}

func parseTuple(data []byte) (t tuple, ok bool) {
	all := attributes(data)
	addresses, protocol := attributes(all[nl.CTA_TUPLE_IP]), attributes(all[nl.CTA_TUPLE_PROTO])
	from, is4 := netip.AddrFromSlice(addresses[nl.CTA_IP_V4_SRC])
	to, also := netip.AddrFromSlice(addresses[nl.CTA_IP_V4_DST])
	number, near, far := protocol[nl.CTA_PROTO_NUM], protocol[nl.CTA_PROTO_SRC_PORT], protocol[nl.CTA_PROTO_DST_PORT]
	if !is4 || !also || len(number) != 1 || len(near) != 2 || len(far) != 2 {
		return t, false
	}
	return tuple{
		netip.AddrPortFrom(from, binary.BigEndian.Uint16(near)),
		netip.AddrPortFrom(to, binary.BigEndian.Uint16(far)), number[0],
	}, true
}

func nested(kind int, parts ...*nl.RtAttr) *nl.RtAttr {
	a := nl.NewRtAttr(unix.NLA_F_NESTED|kind, nil)
	for _, part := range parts {
		a.AddChild(part)
	}
	return a
}

func tupleAttribute(kind int, t tuple) *nl.RtAttr {
	return nested(kind,
		nested(nl.CTA_TUPLE_IP, nl.NewRtAttr(nl.CTA_IP_V4_SRC, t.from.Addr().AsSlice()),
			nl.NewRtAttr(nl.CTA_IP_V4_DST, t.to.Addr().AsSlice())),
		nested(nl.CTA_TUPLE_PROTO, nl.NewRtAttr(nl.CTA_PROTO_NUM, []byte{t.protocol}),
			nl.NewRtAttr(nl.CTA_PROTO_SRC_PORT, nl.BEUint16Attr(t.from.Port())),
			nl.NewRtAttr(nl.CTA_PROTO_DST_PORT, nl.BEUint16Attr(t.to.Port()))))
}

// translation asks for exactly one address and port.
func translation(kind int, to netip.AddrPort) *nl.RtAttr {
	address, port := to.Addr().AsSlice(), nl.BEUint16Attr(to.Port())
	return nested(kind, nl.NewRtAttr(ctaNATMinIP, address), nl.NewRtAttr(ctaNATMaxIP, address),
		nested(ctaNATProto, nl.NewRtAttr(ctaNATMinPort, port), nl.NewRtAttr(ctaNATMaxPort, port)))
}

// create makes an entry in a zone. It is given as one that is not translated, and what is to be translated next to it:
// so the kernel translates as rules of SNAT and DNAT do. It has never seen the connection's windows and accepts any.
func (c *connection) create(zone uint16) error {
	request := conntrackRequest(nl.IPCTNL_MSG_CT_NEW, unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	parts := []*nl.RtAttr{
		tupleAttribute(nl.CTA_TUPLE_ORIG, c.original),
		tupleAttribute(nl.CTA_TUPLE_REPLY, c.original.reversed()),
		nl.NewRtAttr(nl.CTA_STATUS, nl.BEUint32Attr(c.status&(ctSeenReply|ctAssured)|ctConfirmed)),
		nl.NewRtAttr(nl.CTA_TIMEOUT, c.timeout),
		nl.NewRtAttr(nl.CTA_ZONE, nl.BEUint16Attr(zone)),
	}
	if len(c.mark) == 4 {
		parts = append(parts, nl.NewRtAttr(nl.CTA_MARK, c.mark))
	}
	if c.reply.to != c.original.from {
		parts = append(parts, translation(ctaNATSrc, c.reply.to))
	}
	if c.reply.from != c.original.to {
		parts = append(parts, translation(ctaNATDst, c.reply.from))
	}
	if c.tcp != nil {
		// A connection goes on while its entry is read and made. One that was about to be established may be so by now,
		// and an entry that expects its beginning would take all it sends for invalid; an established one ignores what
		// is left of a beginning.
		state := max(c.tcp.state, nl.TCP_CONNTRACK_ESTABLISHED)
		flags := func(of byte) []byte { return []byte{of&tcpKept | tcpLiberal, tcpKept | tcpLiberal} }
		parts = append(parts, nested(nl.CTA_PROTOINFO, nested(nl.CTA_PROTOINFO_TCP,
			nl.NewRtAttr(nl.CTA_PROTOINFO_TCP_STATE, []byte{state}),
			nl.NewRtAttr(nl.CTA_PROTOINFO_TCP_WSCALE_ORIGINAL, []byte{c.tcp.scale[0]}),
			nl.NewRtAttr(nl.CTA_PROTOINFO_TCP_WSCALE_REPLY, []byte{c.tcp.scale[1]}),
			nl.NewRtAttr(nl.CTA_PROTOINFO_TCP_FLAGS_ORIGINAL, flags(c.tcp.flags[0])),
			nl.NewRtAttr(nl.CTA_PROTOINFO_TCP_FLAGS_REPLY, flags(c.tcp.flags[1])))))
	}
	for _, part := range parts {
		request.AddData(part)
	}
	if _, err := request.Execute(unix.NETLINK_NETFILTER, 0); err != nil {
		return fmt.Errorf("track the connection %s to %s: %w", c.original.from, c.original.to, err)
	}
	return nil
}

// forget removes the entry of a direction in a zone; one that is not there is removed already.
func (t tuple) forget(zone uint16) error {
	request := conntrackRequest(nl.IPCTNL_MSG_CT_DELETE, unix.NLM_F_ACK)
	request.AddData(tupleAttribute(nl.CTA_TUPLE_ORIG, t))
	request.AddData(nl.NewRtAttr(nl.CTA_ZONE, nl.BEUint16Attr(zone)))
	if _, err := request.Execute(unix.NETLINK_NETFILTER, 0); err != nil && !errors.Is(err, syscall.ENOENT) {
		return fmt.Errorf("forget the connection %s to %s: %w", t.from, t.to, err)
	}
	return nil
}
