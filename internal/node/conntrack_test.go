package node

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink/nl"
)

// message is what the kernel tells of a connection, as far as it is read.
func message(original, reply tuple, parts ...*nl.RtAttr) []byte {
	bytes := make([]byte, nl.SizeofNfgenmsg)
	for _, part := range append([]*nl.RtAttr{tupleAttribute(nl.CTA_TUPLE_ORIG, original),
		tupleAttribute(nl.CTA_TUPLE_REPLY, reply)}, parts...) {
		bytes = append(bytes, part.Serialize()...)
	}
	return bytes
}

func aTuple(from, to string, protocol uint8) tuple {
	return tuple{netip.MustParseAddrPort(from), netip.MustParseAddrPort(to), protocol}
}

func TestParseConnection(t *testing.T) {
	original, reply := aTuple("198.18.0.11:40000", "198.18.96.1:80", 6), aTuple("198.19.5.2:8080", "198.19.5.1:1024", 6)
	status := nl.NewRtAttr(nl.CTA_STATUS, nl.BEUint32Attr(ctSeenReply|ctAssured|ctSourceNAT))
	timeout := nl.NewRtAttr(nl.CTA_TIMEOUT, nl.BEUint32Attr(300))
	state := nested(nl.CTA_PROTOINFO,
		nested(nl.CTA_PROTOINFO_TCP, nl.NewRtAttr(nl.CTA_PROTOINFO_TCP_STATE, []byte{nl.TCP_CONNTRACK_TIME_WAIT}),
			nl.NewRtAttr(nl.CTA_PROTOINFO_TCP_WSCALE_REPLY, []byte{7}),
			nl.NewRtAttr(nl.CTA_PROTOINFO_TCP_FLAGS_ORIGINAL, []byte{3, 0})))
	got, ok := parseConnection(message(original, reply, status, timeout, state,
		nl.NewRtAttr(nl.CTA_ZONE, nl.BEUint16Attr(untieZone))))
	want := connection{original: original, reply: reply, zone: untieZone, status: ctSeenReply | ctAssured | ctSourceNAT,
		timeout: nl.BEUint32Attr(300),
		tcp:     &tcpState{state: nl.TCP_CONNTRACK_TIME_WAIT, scale: [2]byte{0, 7}, flags: [2]byte{3, 0}}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(connection{}, tuple{}, tcpState{}),
		cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); !ok || diff != "" {
		t.Errorf("%v, %s", ok, diff)
	}
	if !got.masqueraded() || !got.over() {
		t.Errorf("masqueraded %v, over %v", got.masqueraded(), got.over())
	}
	for name, parts := range map[string][]*nl.RtAttr{
		"TCP without a state": {status, timeout}, "no status": {timeout, state}, "no timeout": {status, state},
	} {
		if _, ok := parseConnection(message(original, reply, parts...)); ok {
			t.Errorf("%s: it was read", name)
		}
	}
	original.protocol = 132
	if _, ok := parseConnection(message(original, reply, status, timeout)); ok {
		t.Error("SCTP was read")
	}
}

// FuzzParseConnection: whatever comes, it is read or it is not.
func FuzzParseConnection(f *testing.F) {
	f.Add(message(aTuple("198.18.0.11:40000", "198.18.96.1:80", 17), aTuple("198.19.5.2:8080", "198.19.5.1:1024", 17),
		nl.NewRtAttr(nl.CTA_STATUS, nl.BEUint32Attr(ctConfirmed)), nl.NewRtAttr(nl.CTA_TIMEOUT, nl.BEUint32Attr(30))))
	f.Fuzz(func(t *testing.T, data []byte) {
		if c, ok := parseConnection(data); ok && (!c.original.from.IsValid() || len(c.timeout) != 4) {
			t.Errorf("%+v", c)
		}
	})
}
