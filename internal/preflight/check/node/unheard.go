package node

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/flags/setting"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

// loss is how nodes lose the packets of pods.
type loss struct {
	when string
	// programs are those whose FORWARD drops by its policy, as words.
	programs string
	// certain is whether no rule is left there that may accept.
	certain bool
}

// unheard reports nodes whose iptables drop in FORWARD what no rule accepts, if Felix accepts only in nftables there: a
// packet traverses the chains of both, and an accept in one does not end the other. judged are the nodes that it
// judged.
func unheard(pass *check.Pass, dropping []cluster.NodeFacts) (found []finding.Finding, judged []string) {
	if pass.Target.CNI != "calico" || pass.Change.Strategy == "mirror" {
		return nil, nil
	}
	leaves := leavesIPTables(pass)
	alike := map[loss][]*cluster.NodeFacts{}
	for i := range dropping {
		facts := &dropping[i]
		when := leaves(facts.Node)
		if when == "" {
			continue
		}
		judged = append(judged, facts.Node)
		if programs, certain := deaf(facts, pass.Target); len(programs) > 0 {
			l := loss{when, strings.Join(programs, " and "), certain}
			alike[l] = append(alike[l], facts)
		}
	}
	for _, l := range slices.SortedFunc(maps.Keys(alike),
		func(a, b loss) int { return cmp.Compare(alike[a][0].Node, alike[b][0].Node) }) {
		found = append(found, l.finding(pass.Target, alike[l]))
	}
	return found, judged
}

func (l loss) finding(target *cni.Installation, lost []*cluster.NodeFacts) finding.Finding {
	var nodes, others []string
	evidence := map[string]any{}
	for _, facts := range lost {
		nodes = append(nodes, facts.Node)
		if facts.Host != nil {
			evidence[facts.Node] = facts.Host.Forward
			for _, accepting := range facts.Host.Forward {
				others = append(others, strangers(accepting)...)
			}
		}
	}
	f := finding.Finding{
		ID: "node/forwarding", Severity: finding.Block, Subject: finding.Subject{Kind: "Node", Name: nodes[0]},
		Message: fmt.Sprintf("on %s the policy of FORWARD is DROP in %s (%s), and Felix accepts nothing there while "+
			"its rules are in nftables: %s, new connections between pods, and with other nodes "+
			"and the outside, are dropped",
			cluster.Count(len(nodes), "node"), l.programs, check.Names(nodes), l.when),
		Evidence: map[string]any{"accepting": evidence},
	}
	if slices.Sort(others); !l.certain && len(others) > 0 {
		f.Message += "; unless other rules accept them: " + check.Names(slices.Compact(others))
	} else if !l.certain {
		f.Message += "; the facts lack other accepting rules: run theseus snapshot --nodes again"
	}
	if !l.certain {
		f.Severity = finding.Warn
	}
	var let, allow []string
	for program := range strings.SplitSeq(l.programs, " and ") {
		let = append(let, program+" -P FORWARD ACCEPT")
		for _, rule := range rangesAccepted(target) {
			allow = append(allow, program+" -A FORWARD "+rule)
		}
	}
	f.Fix = fmt.Sprintf("on each of these nodes: %s; and at its source, which would set it again (Docker: "+
		"\"ip-forward-no-drop\": true in /etc/docker/daemon.json; ufw: DEFAULT_FORWARD_POLICY=\"ACCEPT\" in "+
		"/etc/default/ufw)", strings.Join(let, "; "))
	if len(allow) > 0 {
		f.Fix += ". Or, to keep it for all other traffic: " + strings.Join(allow, "; ")
	}
	return f
}

// deaf returns the programs whose tables drop the packets of the target's pods once Felix accepts only in nftables. It
// is certain if one of them has no rule left that may accept.
func deaf(facts *cluster.NodeFacts, target *cni.Installation) (programs []string, certain bool) {
	if facts.Host == nil || len(facts.Host.Forward) == 0 {
		return []string{"iptables"}, false // an older agent looked
	}
	for _, kind := range slices.Sorted(maps.Keys(facts.Host.Forward)) {
		others := strangers(facts.Host.Forward[kind])
		if !letThrough(others, target) {
			programs = append(programs, "iptables-"+kind)
			certain = certain || len(others) == 0
		}
	}
	return programs, certain
}

// ownRules are the chains and rules with which networks, policy agents, kube-proxy, Docker and libvirt accept only
// their own packets. kube-proxy accepts masqueraded packets and existing connections.
var ownRules = regexp.MustCompile(
	`^(cali-|KUBE-|FLANNEL-|WEAVE-|CNI-FORWARD$|LIBVIRT_|DOCKER$|DOCKER-(BRIDGE|CT|FORWARD|INGRESS|INTERNAL|ISOLATION))` +
		`|(^|[^!] )-[io] (docker0|docker_gwbridge|br-[0-9a-f]{12}|virbr\d+|cni0|weave) ` +
		`|--comment "?(cali:|flanneld |rule to explicitly ACCEPT traffic that comply)`)

// strangers returns other rules that may accept a new connection in FORWARD.
func strangers(accepting []string) []string {
	return slices.DeleteFunc(slices.Clone(accepting), ownRules.MatchString)
}

// letThrough reports whether rules accept all packets from and to the target's pods.
func letThrough(rules []string, target *cni.Installation) bool {
	ranges := rangesAccepted(target)
	return slices.Contains(rules, "-j ACCEPT") ||
		len(ranges) > 0 && !slices.ContainsFunc(ranges, func(rule string) bool { return !slices.Contains(rules, rule) })
}

// rangesAccepted returns the rules that do so.
func rangesAccepted(target *cni.Installation) []string {
	var rules []string
	for _, prefix := range check.Prefixes(target.PodCIDRs...) {
		if prefix.Addr().Is4() {
			rules = append(rules, "-s "+prefix.String()+" -j ACCEPT", "-d "+prefix.String()+" -j ACCEPT")
		}
	}
	return rules
}

// leavesIPTables returns from when on a node's Felix accepts nothing in iptables; empty if it still does, or begins to.
func leavesIPTables(pass *check.Pass) func(node string) string {
	before, after := setting.Read(pass.Snapshot, nil), setting.Read(pass.Snapshot, pass.Manifest)
	if pass.OneNetwork() {
		asked := modeAsked(pass, after.Catalogue())
		return func(node string) string {
			if inNFTables(before, pass.Target.Version, node, "") ||
				!inNFTables(after, pass.Target.Version, node, asked) {
				return ""
			}
			return "from then on"
		}
	}
	gone := "at the latest when the present network's rules are removed"
	beside := pass.Source != nil && pass.Source.Capabilities.Policy == cni.PolicyKubernetes &&
		!cni.Older(pass.Target.Version, "v3.29.0")
	return func(node string) string {
		switch {
		case inNFTables(after, pass.Target.Version, node, ""):
			return gone
		case beside: // policy/agent-shares-tables
			return gone + ", and until calico gets its final settings (Theseus runs Felix in nftables while another " +
				"agent enforces policy in iptables)"
		}
		return ""
	}
}

// felixMode is the setting that decides where Felix keeps its rules.
const felixMode = "calico/nftablesMode"

// modeAsked returns the value of felixMode that a change sets; empty if it sets none.
func modeAsked(pass *check.Pass, catalogue *setting.Catalogue) string {
	name, value, _ := strings.Cut(pass.Change.Flag, "=")
	if settings, err := catalogue.Dataplane(pass.Change.Dataplane); err == nil {
		last := settings[len(settings)-1]
		name, value = last.Knob, last.Value
	}
	if k, err := catalogue.Find(name); err == nil && k.ID() == felixMode {
		return value
	}
	return ""
}

// inNFTables reports whether a node's Felix, of a version of Calico, keeps its rules in nftables, with the mode that is
// set or the one that the change asks for.
func inNFTables(fleet *setting.Fleet, version, node, asked string) bool {
	value := func(id string) (in setting.InForce) {
		if k, ok := fleet.Catalogue().Get(id); ok {
			in = fleet.Value(k, node)
		}
		return in
	}
	felix := value(felixMode)
	mode := cmp.Or(asked, felix.Value)
	if asked == "" && felix.By == nil && value("calico/linuxDataplane").Value == "Nftables" {
		mode = "Enabled" // as Calico's operator writes up to v1.41; from v1.42 (Calico v3.32) on it writes Auto
		if !cni.Older(version, "v3.32.0") {
			mode = "Auto"
		}
	}
	return strings.EqualFold(mode, "Enabled") ||
		strings.EqualFold(mode, "Auto") && value("kube-proxy/mode").Value == "nftables"
}
