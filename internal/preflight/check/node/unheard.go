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

// loss is how nodes lose what goes to and from pods.
type loss struct {
	when string
	// programs are those whose FORWARD drops by its policy, as words.
	programs string
	// certain is whether nobody is left there who could accept.
	certain bool
}

// unheard finds, among nodes whose iptables drop in FORWARD what nobody accepts, those where Felix accepts in nftables alone: a packet
// passes the chains of both, and to be accepted in one ends nothing in the other. judged are the nodes of which it has the answer.
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
	for _, l := range slices.SortedFunc(maps.Keys(alike), func(a, b loss) int { return cmp.Compare(alike[a][0].Node, alike[b][0].Node) }) {
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
		Message: fmt.Sprintf("on %s the policy of FORWARD is DROP in %s (%s), where Felix accepts nothing while its rules are in nftables: %s, new connections "+
			"from pod to pod, and with other nodes and the outside, are dropped there", cluster.Count(len(nodes), "node"), l.programs, check.Names(nodes), l.when),
		Evidence: map[string]any{"accepting": evidence},
	}
	if slices.Sort(others); !l.certain && len(others) > 0 {
		f.Message += "; unless rules let them through that are no network's: " + check.Names(slices.Compact(others))
	} else if !l.certain {
		f.Message += "; who else accepts there was not looked at: theseus snapshot --nodes again"
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
	f.Fix = fmt.Sprintf("on each of these nodes: %s; and where it is set, as it comes back from there (Docker: \"ip-forward-no-drop\": true in /etc/docker/daemon.json; "+
		"ufw: DEFAULT_FORWARD_POLICY=\"ACCEPT\" in /etc/default/ufw)", strings.Join(let, "; "))
	if len(allow) > 0 {
		f.Fix += ". Or, to leave it for all else: " + strings.Join(allow, "; ")
	}
	return f
}

// deaf are the programs whose tables drop what goes to and from the target's pods, once it accepts in nftables. It is certain where nobody
// is left in one of them who may accept it.
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

// ownRules are chains and rules by which networks, what enforces policy beside them, kube-proxy, Docker and libvirt accept what is theirs alone.
// kube-proxy's is what it masquerades, and what is there already.
var ownRules = regexp.MustCompile(`^(cali-|KUBE-|FLANNEL-|WEAVE-|CNI-FORWARD$|LIBVIRT_|DOCKER$|DOCKER-(BRIDGE|CT|FORWARD|INGRESS|INTERNAL|ISOLATION))` +
	`|(^|[^!] )-[io] (docker0|docker_gwbridge|br-[0-9a-f]{12}|virbr\d+|cni0|weave) ` +
	`|--comment "?(cali:|flanneld |rule to explicitly ACCEPT traffic that comply)`)

// strangers are what may accept a new connection in FORWARD and is none of these.
func strangers(accepting []string) []string {
	return slices.DeleteFunc(slices.Clone(accepting), ownRules.MatchString)
}

// letThrough says whether rules accept all that goes to and from the target's pods.
func letThrough(rules []string, target *cni.Installation) bool {
	ranges := rangesAccepted(target)
	return slices.Contains(rules, "-j ACCEPT") ||
		len(ranges) > 0 && !slices.ContainsFunc(ranges, func(rule string) bool { return !slices.Contains(rules, rule) })
}

// rangesAccepted are the rules that do so.
func rangesAccepted(target *cni.Installation) []string {
	var rules []string
	for _, prefix := range check.Prefixes(target.PodCIDRs...) {
		if prefix.Addr().Is4() {
			rules = append(rules, "-s "+prefix.String()+" -j ACCEPT", "-d "+prefix.String()+" -j ACCEPT")
		}
	}
	return rules
}

// leavesIPTables says of a node from when on Felix accepts nothing in its iptables; empty where it does as before, or comes into them.
func leavesIPTables(pass *check.Pass) func(node string) string {
	before, after := setting.Read(pass.Snapshot, nil), setting.Read(pass.Snapshot, pass.Manifest)
	if pass.OneNetwork() {
		asked := modeAsked(pass, after.Catalogue())
		return func(node string) string {
			if inNFTables(before, pass.Target.Version, node, "") || !inNFTables(after, pass.Target.Version, node, asked) {
				return ""
			}
			return "from then on"
		}
	}
	gone := "at the latest when the present network's rules are gone"
	beside := pass.Source != nil && pass.Source.Capabilities.Policy == cni.PolicyKubernetes && !cni.Older(pass.Target.Version, "v3.29.0")
	return func(node string) string {
		switch {
		case inNFTables(after, pass.Target.Version, node, ""):
			return gone
		case beside: // policy/agent-shares-tables
			return gone + ", and until calico has its own form (Theseus runs Felix in nftables beside what enforces policy in iptables)"
		}
		return ""
	}
}

// felixMode is the knob that says where Felix keeps its rules.
const felixMode = "calico/nftablesMode"

// modeAsked is the value of felixMode that a change asks for; empty where it asks for none.
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

// inNFTables says whether a node's Felix, of a version of Calico, keeps its rules in nftables, with the mode that is set or the one that is asked for.
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
		mode = "Enabled" // what Calico's operator writes up to v1.41; from v1.42 (Calico v3.32) on Auto
		if !cni.Older(version, "v3.32.0") {
			mode = "Auto"
		}
	}
	return strings.EqualFold(mode, "Enabled") || strings.EqualFold(mode, "Auto") && value("kube-proxy/mode").Value == "nftables"
}
