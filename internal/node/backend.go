package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// family is an address family, by the name of its iptables program.
type family string

const (
	ip4 family = "iptables"
	ip6 family = "ip6tables"
)

func familyOf(prefix netip.Prefix) family {
	if prefix.Addr().Is4() {
		return ip4
	}
	return ip6
}

// backend is one of the kernel's two implementations of iptables, for one family. Both can hold rules at
// the same time, and packets then pass through both.
type backend struct {
	family family
	kind   string // "nft" or "legacy"
}

func (b backend) program(suffix string) string { return string(b.family) + "-" + b.kind + suffix }

// backends are all that may hold rules.
func backends() []backend {
	return []backend{{ip4, "nft"}, {ip4, "legacy"}, {ip6, "nft"}, {ip6, "legacy"}}
}

// waitLock is how many seconds a program waits for the lock that users of iptables share.
const waitLock = "10"

// save reads all tables of a backend. A backend whose program is not in the image counts as empty.
func (n *Node) save(ctx context.Context, b backend) ([]table, error) {
	text, err := n.Commands.run(ctx, "", b.program("-save"))
	if errors.Is(err, errAbsent) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	tables, err := parseSave(text)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", b.program("-save"), err)
	}
	return tables, nil
}

// restore applies a script to a backend, leaving all else as it is.
func (n *Node) restore(ctx context.Context, b backend, script string) error {
	_, err := n.Commands.run(ctx, script, b.program("-restore"), "--wait", waitLock, "--noflush")
	return err
}

// postrouting reads nat POSTROUTING, without reading the tens of thousands of rules that kube-proxy may
// have elsewhere in the table.
func (n *Node) postrouting(ctx context.Context, b backend) ([]rule, error) {
	text, err := n.Commands.run(ctx, "", b.program(""), "--wait", waitLock, "-t", "nat", "-S", "POSTROUTING")
	if err != nil {
		return nil, err
	}
	return parseChain(text), nil
}

// choose finds the backends of a family that must exempt the joint traffic: every one that has rules in
// nat POSTROUTING, because a packet passes through both and either could masquerade it. Where none has,
// it is the one that kube-proxy or the kubelet use.
func (n *Node) choose(ctx context.Context, f family) ([]backend, error) {
	var chosen []backend
	best, most := backend{f, "nft"}, 0
	for _, b := range []backend{{f, "nft"}, {f, "legacy"}} {
		tables, err := n.save(ctx, b)
		if err != nil {
			return nil, err
		}
		if translates(tables) {
			chosen = append(chosen, b)
		}
		if count := kubeChains(tables); count > most {
			best, most = b, count
		}
	}
	if len(chosen) == 0 {
		chosen = append(chosen, best)
	}
	return chosen, nil
}

// translates says whether nat POSTROUTING has rules other than those of a joint phase.
func translates(tables []table) bool {
	for _, t := range tables {
		for _, r := range t.rules {
			if t.name == "nat" && r.chain == "POSTROUTING" && r.comment() != jointComment {
				return true
			}
		}
	}
	return false
}

func kubeChains(tables []table) int {
	count := 0
	for _, t := range tables {
		for _, c := range t.chains {
			if strings.HasPrefix(c.name, "KUBE-") {
				count++
			}
		}
	}
	return count
}
