package setting

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/bgp"
)

// Machine reports whether the proof can be checked automatically against the facts that an agent reports about a node.
func (p *Proof) Machine() bool {
	return len(p.Tables)+len(p.NoTables)+len(p.Links)+len(p.NoLinks)+len(p.Routes)+len(p.NoRoutes)+len(p.Sysctls) > 0 ||
		p.Backend != "" || p.MTU != "" || p.Port != "" || p.VNI != "" || p.BIRD != ""
}

// The states of BIRD that a proof can require.
const (
	birdRuns  = "runs"  // it answers
	birdMeets = "meets" // it answers, and its sessions are established
	birdGone  = "gone"
)

// calicoChains is the prefix of the names of Calico's chains.
const calicoChains = "cali-"

// Look compares the kernel and BIRD of a node with a value that should be in effect there. It returns the evidence that
// holds, and the evidence that is missing or wrong. Facts that the agent does not report count as missing.
func (p *Proof) Look(value string, f *cluster.NodeFacts) (there, wrong []string) {
	say := func(holds bool, yes, no string) {
		if holds {
			there = append(there, yes)
		} else {
			wrong = append(wrong, no)
		}
	}
	link := func(name string) *cluster.Link {
		if i := slices.IndexFunc(f.Links, func(l cluster.Link) bool { return l.Name == name }); i >= 0 {
			return &f.Links[i]
		}
		return nil
	}
	for _, name := range p.Links {
		say(link(name) != nil, "interface "+name, "interface "+name+" does not exist")
	}
	for _, name := range p.NoLinks {
		say(link(name) == nil, "no interface "+name, "interface "+name+" still exists")
	}
	number := func(name, what string, of func(*cluster.Link) int) {
		// 0 lets the agent choose, and without the link there is no number to compare.
		if l := link(name); name != "" && l != nil && value != "0" {
			is := strconv.Itoa(of(l))
			say(is == value, fmt.Sprintf("%s of %s is %s", what, name, is),
				fmt.Sprintf("%s of %s is %s", what, name, is))
		}
	}
	number(p.MTU, "the MTU", func(l *cluster.Link) int { return l.MTU })
	number(p.Port, "the port", func(l *cluster.Link) int { return l.Port })
	number(p.VNI, "the VNI", func(l *cluster.Link) int { return l.VNI })
	routes := func(protocol string, wanted bool) {
		n := f.Routes[protocol]
		say((n > 0) == wanted, fmt.Sprintf("%d routes of proto %s", n, protocol),
			fmt.Sprintf("%d routes of proto %s", n, protocol))
	}
	for _, protocol := range p.Routes {
		routes(protocol, true)
	}
	for _, protocol := range p.NoRoutes {
		routes(protocol, false)
	}
	if p.BIRD != "" {
		p.lookBIRD(f.BIRD, say)
	}
	if len(p.Tables)+len(p.NoTables)+len(p.Sysctls) == 0 && p.Backend == "" {
		return there, wrong
	}
	if f.Host == nil || f.Host.Traces == nil {
		return there, append(wrong, "the agent does not report rules")
	}
	for _, table := range p.Tables {
		say(slices.Contains(f.Host.Traces.NFTables, table), "nft table "+table, "nft table "+table+" does not exist")
	}
	for _, table := range p.NoTables {
		say(!slices.Contains(f.Host.Traces.NFTables, table), "no nft table "+table, "nft table "+table+" still exists")
	}
	if p.Backend != "" {
		legacy := f.Host.Traces.Legacy[calicoChains]
		in := map[string]int{"legacy": legacy, "nft": f.Host.Traces.Chains[calicoChains] - legacy}
		text := fmt.Sprintf("%d chains %s* in iptables-nft, %d in iptables-legacy", in["nft"], calicoChains, legacy)
		say(in[p.Backend] > 0 && in["nft"]+legacy == in[p.Backend], text, text)
	}
	for _, name := range slices.Sorted(maps.Keys(p.Sysctls)) {
		is, known := f.Host.Sysctls[name]
		say(known && is == p.Sysctls[name], name+" is "+is, fmt.Sprintf("%s is %q, not %s", name, is, p.Sysctls[name]))
	}
	return there, wrong
}

// lookBIRD compares the state of BIRD with the required state.
func (p *Proof) lookBIRD(bird *cluster.BIRD, say func(holds bool, yes, no string)) {
	switch {
	case p.BIRD == birdGone:
		say(bird == nil || bird.Down != "", "no BIRD", "BIRD still runs")
	case bird == nil:
		say(false, "", "BIRD does not run")
	case bird.Down != "":
		say(false, "", "BIRD does not answer: "+bird.Down)
	case p.BIRD == birdRuns:
		say(true, "BIRD runs", "")
	default:
		up := len(bgp.Up(bird))
		text := fmt.Sprintf("%d of %d sessions of BIRD are established", up, len(bird.Sessions))
		say(up > 0 && up == len(bird.Sessions), text, text)
	}
}
