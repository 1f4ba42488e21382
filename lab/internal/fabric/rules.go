package fabric

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Drop is a kind of packet that a link loses: UDP or TCP to one destination port, in either direction.
type Drop struct {
	Proto string // udp or tcp
	Port  uint16
}

// Faults are the injected faults of one node's link.
type Faults struct {
	Partitioned bool    // nothing passes
	Loss        float64 // share of the frames lost in each direction, 0 to 1
	Drops       []Drop
}

// None reports whether the link has no faults.
func (f Faults) None() bool { return !f.Partitioned && f.Loss == 0 && len(f.Drops) == 0 }

// String lists the faults in a few words; "ok" if there are none.
func (f Faults) String() string {
	var out []string
	if f.Partitioned {
		out = append(out, "partitioned")
	}
	if f.Loss > 0 {
		out = append(out, "loss "+strconv.FormatFloat(f.Loss*100, 'g', 4, 64)+"%")
	}
	for _, d := range f.Drops {
		out = append(out, fmt.Sprintf("drops %s:%d", d.Proto, d.Port))
	}
	if out == nil {
		return "ok"
	}
	return strings.Join(out, ", ")
}

// ParseDrop reads PROTO:PORT.
func ParseDrop(text string) (Drop, error) {
	proto, port, _ := strings.Cut(text, ":")
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || proto != "udp" && proto != "tcp" {
		return Drop{}, fmt.Errorf("%q is not PROTO:PORT, such as udp:8472", text)
	}
	return Drop{Proto: proto, Port: uint16(n)}, nil
}

// ParseLoss reads a share such as 1% or 0.01.
func ParseLoss(text string) (float64, error) {
	number, percent := strings.CutSuffix(text, "%")
	f, err := strconv.ParseFloat(number, 64)
	if percent {
		f /= 100
	}
	if err != nil || !(f >= 0 && f <= 1) {
		return 0, fmt.Errorf("%q is not a share of packets, such as 1%%", text)
	}
	return f, nil
}

// Ruleset renders the faults of all links, keyed by bridge port, as one nftables transaction. The
// first chain sees frames that come from a node and the second those that go to one, so both
// directions of a link are affected, and traffic between two healthy nodes is not matched twice.
func Ruleset(faults map[string]Faults) string {
	var b strings.Builder
	b.WriteString("table bridge faults\ndelete table bridge faults\n")
	b.WriteString("table bridge faults {\n")
	for _, chain := range []struct{ name, hook, match string }{
		{"from", "prerouting", "iifname"},
		{"to", "postrouting", "oifname"},
	} {
		fmt.Fprintf(&b, "  chain %s {\n    type filter hook %s priority 0; policy accept;\n", chain.name, chain.hook)
		for _, port := range slices.Sorted(maps.Keys(faults)) {
			f := faults[port]
			prefix := fmt.Sprintf("    %s %q", chain.match, port)
			if f.Partitioned {
				fmt.Fprintf(&b, "%s counter drop\n", prefix)
			}
			switch {
			case f.Loss >= 1: // nftables refuses a comparison that always holds
				fmt.Fprintf(&b, "%s counter drop\n", prefix)
			case f.Loss > 0:
				fmt.Fprintf(&b, "%s numgen random mod 100000 < %d counter drop\n",
					prefix, min(99999, max(1, int(f.Loss*100000+0.5))))
			}
			for _, d := range f.Drops {
				fmt.Fprintf(&b, "%s ether type ip %s dport %d counter drop\n", prefix, d.Proto, d.Port)
			}
		}
		b.WriteString("  }\n")
	}
	b.WriteString("}\n")
	return b.String()
}
