package node

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/internal/step"
)

// portTable keeps masqueraded connections off a port that an agent exempts from connection tracking: answers to that
// port are not translated back, and where the agent lets only its tunnels use it they are dropped. Of the ports that
// Linux chooses from it is one in 64,512 (https://github.com/projectcalico/calico/pull/13118). The chain comes before
// those of kube-proxy, portmap and the agent, and does for UDP what they would do, but for that port: for what they
// marked, what leaves by the tunnel, and what pods send to the outside.
const portTable = "theseus-ports"

// reserved are the ports that Linux does not choose for connections of ports above them.
const reserved = 1024

// beside are the ports below a port or above it, whichever are more, as nftables writes them.
func beside(port int) string {
	if port-reserved > math.MaxUint16-port {
		return fmt.Sprintf("%d-%d", reserved, port-1)
	}
	return fmt.Sprintf("%d-%d", max(port+1, reserved), math.MaxUint16)
}

// portScript is the table in place of a former one. What is not to be masqueraded at all is left to the rules of the
// joint phase.
func portScript(args step.JoinArgs) string {
	var script strings.Builder
	fmt.Fprintf(&script, "add table ip %[1]s\ndelete table ip %[1]s\n", portTable)
	if args.Untracked == nil {
		return script.String()
	}
	fmt.Fprintf(&script, "table ip %s {\nchain postrouting { type nat hook postrouting priority 99; policy accept;\n",
		portTable)
	if !slices.Equal(args.Old, args.New) {
		for _, pair := range [][2][]string{{args.Old, args.New}, {args.New, args.Old}} {
			fmt.Fprintf(&script, "ip saddr { %s } ip daddr { %s } accept\n",
				strings.Join(pair[0], ", "), strings.Join(pair[1], ", "))
		}
	}
	const udp = "meta l4proto udp"
	masquerade := "masquerade to :" + beside(args.Untracked.Port) + " fully-random"
	script.WriteString(marked(udp, masquerade))
	fmt.Fprintf(&script, "%s oifname %q fib saddr . oif type != local fib saddr type local %s\n",
		udp, args.Untracked.Link, masquerade)
	if from, except := args.Untracked.From, args.Untracked.Except; len(from) > 0 && len(except) > 0 {
		fmt.Fprintf(&script, "%s ip saddr { %s } ip daddr != { %s } %s\n",
			udp, strings.Join(from, ", "), strings.Join(except, ", "), masquerade)
	}
	return script.String() + "}\n}\n"
}

// spare puts the table as a joint phase wants it, and takes it away where none does; it says what it did. A table of a
// former process is written once more, as it may be of an order before this one.
func (n *Node) spare(ctx context.Context, args step.JoinArgs) ([]string, error) {
	all, err := n.nftables(ctx, true)
	if err != nil {
		return nil, err
	}
	present, script := slices.Contains(all, "ip "+portTable), portScript(args)
	if present == (args.Untracked != nil) && (!present || n.ports == script) {
		return nil, nil
	}
	if _, err := n.Commands.run(ctx, script, "nft", "-f", "-"); err != nil {
		return nil, fmt.Errorf("keep masqueraded connections off a port: %w", err)
	}
	known := n.ports != ""
	n.ports = script
	switch {
	case args.Untracked == nil:
		return []string{"ports as before"}, nil
	case present && !known:
		return nil, nil
	}
	return []string{fmt.Sprintf("no connection masqueraded with UDP port %d", args.Untracked.Port)}, nil
}
