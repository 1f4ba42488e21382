package node

import (
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/theseus-cni/theseus/internal/step"
)

// someMarks are those of a network that marks forwarded packets with 0xf00 and an identity, next to a policy agent with
// the bits 0x30000.
func someMarks() []step.Mark {
	return []step.Mark{
		{Hook: step.Forwarded, Is: []step.Bits{{Value: 0xf00, Mask: 0xf00}}, Set: step.Bits{Mask: 0x30000}},
		{Hook: step.Sent, IsNot: []step.Bits{{Value: 0xd00, Mask: 0xf00}, {Value: 0xa00, Mask: 0xe00}},
			Set: step.Bits{Value: 0xc00, Mask: 0xf00}},
	}
}

// TestMarks: while networks are joined, packets that the node sends get the mark before the filter rules see them, and
// the others keep theirs; a deleted table comes back, and in the end there is none.
func TestMarks(t *testing.T) {
	if !alone(t) {
		return
	}
	sh(t, "", "sh", "-ec", `ip link set lo up
		iptables -A OUTPUT -m mark --mark 0xc00/0xf00 -m comment --comment host
		iptables -A OUTPUT -m mark --mark 0xd00/0xf00 -m comment --comment proxy
		iptables -A OUTPUT -m mark --mark 0xb00/0xf00 -m comment --comment other`)
	// or the kernel would answer
	receiver, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9})
	must(t, err)
	defer receiver.Close()
	send := func(mark int) {
		t.Helper()
		conn, err := net.Dial("udp4", "127.0.0.1:9")
		must(t, err)
		defer conn.Close()
		raw, err := conn.(*net.UDPConn).SyscallConn()
		must(t, err)
		must(t, raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, mark)
		}))
		must(t, err)
		_, err = conn.Write([]byte{1})
		must(t, err)
	}
	n := newNode(t)
	args := step.JoinArgs{Old: []string{"10.244.0.0/16"}, New: []string{"10.96.0.0/16"}, Marks: someMarks()}
	seen := func(when string, mark int, want string) {
		t.Helper()
		sh(t, "", "iptables", "-Z", "OUTPUT")
		send(mark)
		if got := commented(sh(t, "", "iptables", "-L", "OUTPUT", "-v", "-x", "-n")); got != want {
			t.Errorf("%s: a packet with the mark %#x is taken for %q, not %q", when, mark, got, want)
		}
	}
	seen("before", 0, "")
	for _, when := range []string{"joined", "joined again"} {
		_, err := n.join(t.Context(), args)
		must(t, err)
		seen(when, 0, "host")
		seen(when, 0xd00, "proxy")
		seen(when, 0xb00, "other") // 0xa00 of 0xe00
	}
	for what, harm := range map[string][]string{"deleted": {"delete", "table", "ip", marksTable},
		"emptied": {"flush", "table", "ip", marksTable}} {
		sh(t, "", append([]string{"nft"}, harm...)...)
		seen("when somebody has "+what+" the table", 0, "")
		for _, want := range []string{"2 rules for marks of packets", ""} {
			if said, err := n.Keep(t.Context()); err != nil || said != want {
				t.Errorf("%s: the agent says %q, %v, not %q", what, said, err, want)
			}
		}
		seen("when the agent has looked", 0, "host")
	}
	other := newNode(t)
	other.Root = n.Root
	for range 2 {
		_, err := other.Keep(t.Context())
		must(t, err)
	}
	_, err = other.part(t.Context(), args)
	must(t, err)
	seen("parted", 0, "")
	if tables := sh(t, "", "nft", "list", "tables"); strings.Contains(tables, marksTable) {
		t.Errorf("the table is left: %s", tables)
	}
}

// commented are the comments of the rules that have counted packets.
func commented(list string) string {
	var all []string
	for line := range strings.Lines(list) {
		_, comment, found := strings.Cut(line, "/* ")
		if packets, _, _ := strings.Cut(strings.TrimSpace(line), " "); found && packets != "0" {
			word, _, _ := strings.Cut(comment, " ")
			all = append(all, word)
		}
	}
	return strings.Join(all, " ")
}

// TestUnmountCgroups: a view of the machine's cgroups is unmounted before the folder that it is in is removed, and its
// cgroups stay.
func TestUnmountCgroups(t *testing.T) {
	if !alone(t) {
		return
	}
	must(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	n := newNode(t)
	at := n.Root + "/run/cilium/cgroupv2"
	must(t, os.MkdirAll(at, 0o755))
	if err := unix.Mount("none", at, "cgroup2", 0, ""); err != nil {
		t.Fatalf("mount cgroup2: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	mine := at + "/theseus-test-" + time.Now().Format("150405.000000")
	must(t, os.Mkdir(mine, 0o755))
	t.Cleanup(func() { _ = unix.Rmdir(mine) })
	must(t, n.remove([]string{"/run/cilium"}))
	if _, err := os.Stat(n.Root + "/run/cilium"); !os.IsNotExist(err) {
		t.Errorf("the folder is still there: %v", err)
	}
	must(t, os.MkdirAll(at, 0o755))
	must(t, unix.Mount("none", at, "cgroup2", 0, ""))
	if _, err := os.Stat(mine); err != nil {
		t.Errorf("the cgroup was removed: %v", err)
	}
	must(t, unix.Rmdir(mine))
}
