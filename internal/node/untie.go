package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Connections that kube-proxy masquerades are tied to the interface by which they left first: when their packets leave
// by another one, the kernel gives them up (nf_nat_oif_changed in net/netfilter/nf_nat_core.c), and they are reset.
// That is a mark of the target MASQUERADE; an entry of connection tracking that is made by hand translates the same
// without.
//
// An entry cannot be replaced in one step, and a packet that comes between its end and its successor is taken for
// a new connection. So each gets a copy in a zone of its own first; a rule sends the connection's packets there, and
// only then, where no packet sees it, the entry itself is made again. New connections are kept from being tied before
// that (origins.go).
const (
	untieZone  = 0x7453
	untieTable = "theseus-connections"
)

// untie makes again the entries of all masqueraded connections to the pods of which concerned is true.
func (n *Node) untie(ctx context.Context, concerned func(pod netip.Addr) bool) error {
	all, err := connections()
	if err != nil {
		return err
	}
	tied := slices.DeleteFunc(all, func(c connection) bool {
		return c.zone != 0 || !c.masqueraded() || c.over() || !concerned(c.reply.from.Addr())
	})
	if len(tied) == 0 {
		return nil
	}
	return n.replace(ctx, tied)
}

// retieFormer ends what a former process did not.
func (n *Node) retieFormer(ctx context.Context) error {
	if n.retied {
		return nil
	}
	tables, err := n.nftables(ctx, true)
	if err == nil {
		err = n.retie(ctx, slices.Contains(tables, "ip "+untieTable))
	}
	n.retied = err == nil
	return err
}

// replace recreates entries.
func (n *Node) replace(ctx context.Context, tied []connection) error {
	var errs []error
	var elements []string
	for _, c := range tied {
		n.at("copy a connection")
		if err := c.create(untieZone); err != nil {
			errs = append(errs, err)
			continue
		}
		elements = append(elements, element(c.original), element(c.reply))
	}
	if len(elements) == 0 {
		return errors.Join(errs...)
	}
	n.at("divert connections")
	_, err := n.Commands.run(ctx, diversion(elements), "nft", "-f", "-")
	return errors.Join(append(errs, err, n.retie(ctx, err == nil))...)
}

// element is a direction of a connection as the set of the diversion has it.
func element(t tuple) string {
	return fmt.Sprintf("%s . %d . %s . %d . %d", t.from.Addr(), t.from.Port(), t.to.Addr(), t.to.Port(), t.protocol)
}

// diversion is the script of the rules that send connections to their copies.
func diversion(elements []string) string {
	const chain = "chain %s { type filter hook %s priority raw; policy accept; ip saddr . th sport . ip daddr . th " +
		"dport . ip protocol @connections ct zone set %d\n}\n"
	var script strings.Builder
	fmt.Fprintf(&script, "table ip %s {\nset connections { type ipv4_addr . inet_service . ipv4_addr . inet_service "+
		". inet_proto; elements = { %s }\n}\n",
		untieTable, strings.Join(elements, ", "))
	for _, hook := range []string{"prerouting", "output"} {
		fmt.Fprintf(&script, chain, hook, hook, untieZone)
	}
	return script.String() + "}\n"
}

// retie ends what was begun: each copy gets an entry in the place of the tied one, then packets find that again.
func (n *Node) retie(ctx context.Context, diverted bool) error {
	if diverted {
		quiesce() // what was under way has found the entries
	}
	all, err := connections()
	if err != nil {
		return err
	}
	copies := slices.DeleteFunc(all, func(c connection) bool { return c.zone != untieZone })
	var errs []error
	if diverted {
		for _, c := range copies {
			n.at("forget a connection")
			errs = append(errs, c.original.forget(0))
			n.at("track a connection")
			errs = append(errs, c.create(0))
		}
		n.at("divert no connections")
		if _, err := n.Commands.run(ctx, "", "nft", "delete", "table", "ip", untieTable); err != nil {
			return errors.Join(append(errs, err)...)
		}
		quiesce() // what was under way has found the copies
	}
	for _, c := range copies {
		n.at("forget a copy")
		errs = append(errs, c.original.forget(untieZone))
	}
	return errors.Join(errs...)
}
