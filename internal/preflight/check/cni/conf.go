package cni

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/step"
)

//go:embed conf_present.md
var confPresentDoc string

// ConfPresent finds configuration and links of other networks on nodes.
func ConfPresent() check.Check {
	return check.Check{
		ID:    "cni/conf-present",
		Title: "Configuration or links of another network are on a node",
		Doc:   confPresentDoc,
		Needs: []string{"source", "target", "nodes", "facts"},
		Run:   confPresent,
	}
}

func confPresent(pass *check.Pass) []finding.Finding {
	var found []finding.Finding
	for i := range pass.Snapshot.Facts {
		facts := &pass.Snapshot.Facts[i]
		for _, file := range facts.ConfFiles {
			if f, ok := judgeFile(pass, facts, file); ok {
				found = append(found, f)
			}
		}
		found = append(found, strangeLinks(pass, facts)...)
	}
	return found
}

// judgeFile says what a file in the configuration folder means. Runtimes read the first that sorts first.
func judgeFile(pass *check.Pass, facts *cluster.NodeFacts, file string) (finding.Finding, bool) {
	own, active := pass.Source.Capabilities.ConfName, slices.ContainsFunc([]string{".conf", ".conflist", ".json"}, func(end string) bool {
		return strings.HasSuffix(file, end)
	})
	if file == own || !active {
		return finding.Finding{}, false // the source's, or a name that no runtime reads
	}
	f := finding.Finding{
		ID: "cni/conf-present", Severity: finding.Warn, Subject: finding.Subject{Kind: "Node", Name: facts.Node},
		Evidence: map[string]any{"file": file, "serving": own},
		Fix: "find what wrote it: Multus, a service mesh and the like keep such a file on purpose, and it stays. If nothing does any more, on the node: mv /etc/cni/net.d/" + file +
			" /etc/cni/; pods that it served stay on its network until they are created again",
	}
	switch {
	case file < own:
		f.Severity = finding.Block
		f.Message = fmt.Sprintf("/etc/cni/net.d/%s sorts before %s: new pods on this node are not on %s", file, own, pass.Source.CNI)
	case file == pass.Target.Capabilities.ConfName:
		f.Severity = finding.Block
		f.Message = fmt.Sprintf("the target's configuration %s is there already: the node would switch as soon as the source's is gone", file)
	case pass.OneNetwork():
		f.Message = fmt.Sprintf("/etc/cni/net.d/%s is not %s's: it would serve pods once %s's own is gone", file, pass.Source.CNI, pass.Source.CNI)
	default:
		f.Message = fmt.Sprintf("/etc/cni/net.d/%s belongs to neither network: it would serve pods once both others are gone", file)
	}
	return f, true
}

// strangeLinks finds links that only another network makes.
func strangeLinks(pass *check.Pass, facts *cluster.NodeFacts) []finding.Finding {
	byNetwork := map[string][]string{
		"calico": {"cali*", "vxlan.calico"}, "flannel": {"flannel.*"}, "weave": {"weave", "vethwe*", "vxlan-6784"},
		"cilium": {"cilium_*", "lxc*"}, "kube-router": {"kube-bridge"},
	}
	if pass.Source.Untried != "" {
		return nil // whose links they are is not known: Canal's are of two networks
	}
	var found []finding.Finding
	for _, name := range []string{"calico", "cilium", "flannel", "kube-router", "weave"} {
		if name == pass.Source.CNI {
			continue
		}
		var names []string
		for _, link := range facts.Links {
			if step.Matches(byNetwork[name], link.Name) && !step.Matches(pass.Source.Capabilities.HostLinks, link.Name) {
				names = append(names, link.Name)
			}
		}
		if len(names) == 0 {
			continue
		}
		found = append(found, finding.Finding{
			ID: "cni/conf-present", Severity: finding.Warn, Subject: finding.Subject{Kind: "Node", Name: facts.Node},
			Message:  fmt.Sprintf("links of %s are on the node (%s): routes and rules of it may be there too, and take traffic", name, strings.Join(names, ", ")),
			Evidence: map[string]any{"links": names},
			Fix:      "see whether pods still use them: on the node, ip route show dev " + names[0] + ". If none does, drain the node and restart it",
		})
	}
	return found
}
