package node

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/theseus-cni/theseus/internal/step"
)

// owned is a table as a network's agent writes it: it denies UDP port 9, and 7 by a rule that a guard leaves out.
const owned = `table ip calico {
	set denied { type inet_service; elements = { 9 }; }
	map way { type inet_service : verdict; elements = { 9 : goto refuse }; }
	chain refuse { counter drop comment "deny"; }
	chain out { type filter hook output priority filter; policy accept;
		udp dport vmap @way
		udp dport 7 counter drop comment "Unknown interface"
	}
	chain marked { type route hook output priority mangle; policy accept; meta mark set 0x1; }
	chain translated { type nat hook postrouting priority srcnat; policy accept; udp dport 11 snat to 127.0.0.1; }
}`

// TestGuard: what a table denies stays denied when the table is gone, until release or until the time is up.
func TestGuard(t *testing.T) {
	if !alone(t) {
		return
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		t.Fatal(err)
	}
	n := newNode(t)
	order := step.Guard{Tables: []string{"ip calico", "ip6 calico"}, Without: []string{"Unknown interface"},
		For: step.Duration(time.Minute)}
	if got := do(t, n, step.VerbGuard, order); got.Changed {
		t.Errorf("there is nothing to guard: %+v", got)
	}
	sh(t, owned, "nft", "-f", "-")
	expect(t, "with its table", map[string]bool{"9": false, "7": false, "11": true})

	do(t, n, step.VerbGuard, order)
	do(t, n, step.VerbGuard, order) // again, in place of the first
	sh(t, "", "nft", "delete", "table", "ip", "calico")
	expect(t, "guarded", map[string]bool{"9": false, "7": true, "11": true})
	if rules := sh(t, "", "nft", "list", "ruleset"); strings.Contains(rules, "0x1") ||
		!strings.Contains(rules, "type nat hook postrouting priority 190;") {
		t.Errorf("the copy marks, or does not translate after all others:\n%s", rules)
	}
	if got := do(t, n, step.VerbGuard, order); got.Changed ||
		!strings.Contains(sh(t, "", "nft", "list", "tables"), "calico-theseus") {
		t.Errorf("a guard whose table is gone was not kept: %+v", got)
	}
	if got := do(t, n, step.VerbRelease, order); !got.Changed {
		t.Errorf("%+v", got)
	}
	expect(t, "released", map[string]bool{"9": true, "7": true, "11": true})
	if got := do(t, n, step.VerbRelease, order); got.Changed {
		t.Errorf("released twice: %+v", got)
	}

	sh(t, owned, "nft", "-f", "-")
	order.For = step.Duration(time.Second)
	do(t, n, step.VerbGuard, order)
	sh(t, "", "nft", "delete", "table", "ip", "calico")
	for !passes(t, "9") { // nobody releases it; the test's own limit ends a guard that never ends
		time.Sleep(50 * time.Millisecond)
	}
	order.For = 0
	if _, err := n.Do(t.Context(), step.VerbGuard, args(t, order)); err == nil {
		t.Error("a guard for no time at all was made")
	}
}

// TestGuardHooksLast: what packets enter first comes when all that it leads to is there.
func TestGuardHooksLast(t *testing.T) {
	scripts := guardOf("table ip calico {\n\tset s {\n\t\ttype ipv4_addr\n\t\tflags interval\n\t}\n\n\tchain a {\n"+
		"\t\tip saddr @s accept\n\t\tdrop\n\t}\n\n"+
		"\tchain in {\n\t\ttype filter hook input priority filter; policy accept;\n\t\tjump a\n\t}\n}\n",
		"ip", "calico", nil, time.Minute)
	if len(scripts) != 2 || strings.Contains(scripts[0], " hook ") || !strings.Contains(scripts[0], "@s accept") ||
		!strings.Contains(scripts[1], " hook ") || strings.Contains(scripts[1], "delete") {
		t.Errorf("%q", scripts)
	}
}

func expect(t *testing.T, when string, ports map[string]bool) {
	t.Helper()
	for port, want := range ports {
		if got := passes(t, port); got != want {
			t.Errorf("%s: port %s passes: %t", when, port, got)
		}
	}
}

// passes sends a datagram over lo; the kernel tells a sender at once that an output chain dropped it.
func passes(t *testing.T, port string) bool {
	t.Helper()
	conn, err := net.Dial("udp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = conn.Write([]byte("x"))
	return err == nil
}
