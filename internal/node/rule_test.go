package node

import (
	"errors"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// TestRuleAdd: the rule is there, and main is as it was, also where an earlier attempt ended halfway.
func TestRuleAdd(t *testing.T) {
	if !alone(t) {
		return
	}
	sh(t, "", "sh", "-c", "ip link set lo up; ip address add 198.19.9.2/24 dev lo")
	handle := &netlink.Handle{}
	tables := func() string { return sh(t, "", "ip", "route", "show", "table", "all") }
	before := tables()
	sh(t, "", "ip", "route", "add", "local", "198.19.9.2", "dev", "lo", "table", "main", "proto", "190")
	must(t, addRule(handle))
	if there, err := hasRule(handle); err != nil || !there || tables() != before {
		t.Errorf("the rule is there: %v, %v; the routes are\n%s\nand were\n%s", there, err, tables(), before)
	}
	sh(t, "", "ip", "route", "add", "local", "198.19.9.2", "dev", "lo", "table", "main", "proto", "190")
	must(t, removeRule(handle))
	if there, err := hasRule(handle); err != nil || there || tables() != before {
		t.Errorf("the rule is there: %v, %v; the routes are\n%s\nand were\n%s", there, err, tables(), before)
	}
}

// BenchmarkFirstRule counts the datagrams that a namespace loses when it gets its first rule: by itself, and as
// ruleAdd adds it. One operation is one namespace.
func BenchmarkFirstRule(b *testing.B) {
	for name, add := range map[string]func(*netlink.Handle, *netlink.Rule) error{"plain": (*netlink.Handle).RuleAdd,
		"kept": ruleAdd} {
		b.Run(name, func(b *testing.B) {
			sent, lost := 0, 0
			for b.Loop() {
				s, l := firstRule(b, add)
				sent, lost = sent+s, lost+l
			}
			b.ReportMetric(float64(sent)/float64(b.N), "sent/op")
			b.ReportMetric(float64(lost), "lost")
		})
	}
}

// firstRule makes two namespaces with a link, floods one from the other, and adds the rule.
func firstRule(b *testing.B, add func(*netlink.Handle, *netlink.Rule) error) (sent, lost int) {
	b.Helper()
	check := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := netns.Get()
	check(err)
	defer home.Close()
	defer func() { check(netns.Set(home)) }()
	up := func(handle *netlink.Handle, name, address string) {
		link, err := handle.LinkByName(name)
		check(err)
		parsed, err := netlink.ParseAddr(address)
		check(err)
		check(errors.Join(handle.AddrAdd(link, parsed), handle.LinkSetUp(link)))
	}
	space := func() (netns.NsHandle, *netlink.Handle) {
		made, err := netns.New()
		check(err)
		handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		check(err)
		up(handle, "lo", "127.0.0.1/8")
		return made, handle
	}
	far, there := space()
	defer far.Close()
	defer there.Close()
	near, here := space()
	defer near.Close()
	defer here.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "near"
	check(here.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "far", PeerNamespace: netlink.NsFd(far)}))
	up(here, "near", "198.19.9.2/24")
	up(there, "far", "198.19.9.1/24")
	server, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(198, 19, 9, 2)})
	check(err)
	defer server.Close()
	check(server.SetReadBuffer(8 << 20))
	check(netns.Set(far))
	client, err := net.DialUDP("udp4", nil, server.LocalAddr().(*net.UDPAddr))
	check(err)
	defer client.Close()
	check(netns.Set(near))

	stop, done, got := make(chan struct{}), make(chan struct{}), 0
	arrived := make(chan struct{})
	go func() {
		defer close(done)
		data := make([]byte, 8)
		for {
			if _, err := server.Read(data); err != nil {
				return
			}
			if got++; got == 100 {
				close(arrived)
			}
		}
	}()
	go func() {
		data := make([]byte, 8)
		for {
			select {
			case <-stop:
				_ = server.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
				return
			default:
				if _, err := client.Write(data); err == nil {
					sent++
				}
			}
		}
	}()
	<-arrived
	check(add(here, pinRule()))
	time.Sleep(5 * time.Millisecond) // what is on its way
	close(stop)
	<-done
	return sent, sent - got
}
